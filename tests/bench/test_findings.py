from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from bench.findings import Findings, FindingsSetting
from bench.scaling import SCALINGS, Scaling
from bench.study import STUDIES
from small_studies import small_scaling, small_study

from tvm_rammer.errors import InputError

SETTING = FindingsSetting(True, (2, 64))
FAILED = {"alexnet": "its process ended"}


def found_out(model: str, choices: int) -> Scaling:
    if model == "vgg19":
        raise MemoryError("no memory")
    if model == "alexnet":
        os._exit(1)
    return small_scaling(choices)


def test_studies_survive_saving(tmp_path: Path) -> None:
    studies = {"mlp": small_study(), "bert_base": small_study(2.0)}
    found = Findings(SETTING, {"cpu": "a CPU"}, studies, FAILED)
    path = tmp_path / "a.json"
    found.save(path)
    assert STUDIES.load(path) == found
    assert STUDIES.resume(path, SETTING) == found


def test_simulations_survive_saving(tmp_path: Path) -> None:
    found = Findings(SETTING, {}, {"mlp": small_scaling(), "bert_base": small_scaling(2)})
    path = tmp_path / "s.json"
    found.save(path)
    assert SCALINGS.load(path) == found


def test_a_file_that_is_not_there_yet_has_nothing(tmp_path: Path) -> None:
    assert STUDIES.resume(tmp_path / "a.json", SETTING) == Findings(SETTING)
    assert STUDIES.resume(None, SETTING) == Findings(SETTING)


def test_findings_under_another_setting_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Findings[Scaling](SETTING).save(path)
    with pytest.raises(InputError) as error:
        SCALINGS.resume(path, FindingsSetting(False, (2,)))
    assert str(error.value) == f"{path} was measured with {SETTING}; give another file"


@pytest.mark.parametrize("text", ["[]", "{", '{"format": 0}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        STUDIES.load(path)
    assert str(error.value) == f"{path} is not a result of ablations.py; give another file"


def test_a_model_that_fails_or_crashes_is_written_down_and_the_next_one_done() -> None:
    found = Findings[Scaling](SETTING)
    for model in ("vgg19", "alexnet", "mlp"):
        found.find("script.py", model, found_out, 3)
    assert found.failed == {"vgg19": "MemoryError: no memory", "alexnet": "its process ended"}
    assert found.found == {"mlp": small_scaling(3)}
    assert next(iter(found.machine["commands"])).startswith("python script.py")


def named_process(path: str, _: int) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def asking(path: str) -> None:
    Findings[None](SETTING).find("a script", path, named_process, 0)


def test_whoever_is_killed_takes_along_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    asker = multiprocessing.get_context("spawn").Process(target=asking, args=(str(path),))
    asker.start()
    while not path.exists() or not path.read_text():
        assert asker.is_alive()
        time.sleep(0.02)
    asker.kill()
    asker.join()
    # A process that has ended may still have an entry until somebody has asked how.
    status = Path("/proc") / path.read_text() / "stat"
    end = time.monotonic() + 30
    with suppress(FileNotFoundError, ProcessLookupError):
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end
            time.sleep(0.02)
