"""What long checks of the plans have shown, for the first page: each with its command and date."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.markdown import table
from tvm_rammer.errors import InputError


@dataclass(frozen=True)
class Proof:
    """A check that takes too long for every change.

    Attributes
    ----------
    claim : str
        What was checked.
    outcome : str
        What was found, with counts.
    command, date : str
        How it is repeated, and when it last ran.
    """

    claim: str
    outcome: str
    command: str
    date: str


def load_proofs(path: Path) -> tuple[Proof, ...]:
    """The checks that a file states."""
    try:
        return tuple(Proof(**one) for one in json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{path} is no list of claim, outcome, command and date ({error}); correct it"
        ) from error


def proofs_section(proofs: Sequence[Proof]) -> list[str]:
    """A table of the checks."""
    if not proofs:
        return []
    rows = [[one.claim, one.outcome, f"`{one.command}`", one.date] for one in proofs]
    return ["## Long checks", table(["checked", "found", "command", "date"], rows, left=4)]
