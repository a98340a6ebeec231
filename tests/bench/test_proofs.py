"""Checks that ran for long, on the first page of the results."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from bench.proofs import Proof, load_proofs, proofs_section

from tvm_rammer.errors import InputError

ROOT = Path(__file__).parents[2]
PROOF = Proof("Plans are safe", "200 graphs, none failed", "pytest -m slow", "2026-11-21")


def test_a_file_is_shown_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    path.write_text(json.dumps([vars(PROOF)]))
    assert load_proofs(path) == (PROOF,)
    assert "\n".join(proofs_section([PROOF])) == (
        "## Long checks\n"
        "| checked | found | command | date |\n"
        "| --- | --- | --- | --- |\n"
        "| Plans are safe | 200 graphs, none failed | `pytest -m slow` | 2026-11-21 |"
    )
    assert not proofs_section([])


def test_commands_name_files_that_exist() -> None:
    proofs = load_proofs(ROOT / "docs" / "results" / "proofs.json")
    words = [word for proof in proofs for word in shlex.split(proof.command)]
    files = [word for word in words if word.endswith(".py")]
    assert len(files) >= len(proofs)
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    path.write_text('[{"name": 1}]')
    with pytest.raises(InputError) as caught:
        load_proofs(path)
    assert str(caught.value) == (
        f"{path} is no list of claim, outcome, command and date "
        "(Proof.__init__() got an unexpected keyword argument 'name'); correct it"
    )
