from __future__ import annotations

from pathlib import Path

import pytest
from small_studies import small_study

from tvm_rammer.errors import InputError
from tvm_rammer.testing.bench.ablation_file import (
    Ablations,
    AblationSetting,
    load_ablations,
    resume_ablations,
)

SETTING = AblationSetting(True, (2, 64))


def test_a_file_survives_saving(tmp_path: Path) -> None:
    studies = {"mlp": small_study(), "bert_base": small_study(choices=2)}
    found = Ablations(SETTING, {"cpu": "a CPU"}, studies, {"alexnet": "its process ended"})
    path = tmp_path / "a.json"
    found.save(path)
    assert load_ablations(path) == found
    assert resume_ablations(path, SETTING) == found


def test_a_file_that_is_not_there_yet_has_no_studies(tmp_path: Path) -> None:
    assert resume_ablations(tmp_path / "a.json", SETTING) == Ablations(SETTING)
    assert resume_ablations(None, SETTING) == Ablations(SETTING)


def test_studies_under_another_setting_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Ablations(SETTING).save(path)
    with pytest.raises(InputError) as error:
        resume_ablations(path, AblationSetting(False, (2,)))
    assert str(error.value) == f"{path} was measured with {SETTING}; give another file"


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 0}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_ablations(path)
    assert str(error.value) == f"{path} is not a result of ablations.py; give another file"
