"""``tvm-rammer records``: databases merged, filtered, in one file."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import tvm
from some_records import write_records

from tvm_rammer.backend import vdevice_for
from tvm_rammer.tuning.database import RECORDS, Database, RecordsWarning


def test_merged_into_one_file(call, tmp_path):
    here = vdevice_for().name
    mine = write_records(tmp_path / "mine", {here: [8, 16]})
    yours = write_records(tmp_path / "yours", {here: [16], "a vacuum tube": [8]})
    path = tmp_path / "ours.json"
    result = call("records", mine, yours, "-o", path, "--json")
    origins = json.loads(result.stdout)["origins"]
    assert [(each["device"], each["operators"], each["races"]) for each in origins] == [
        (here, 2, 2),
        ("a vacuum tube", 1, 1),
    ]
    assert len(Database(path)) == 3
    result = call("records", path, "--here", "-o", tmp_path / "here", "--json")
    assert [each["device"] for each in json.loads(result.stdout)["origins"]] == [here]
    assert len(Database(tmp_path / "here")) == 2
    result = call("records", path, "--device", "VACUUM", "--json")
    assert [each["device"] for each in json.loads(result.stdout)["origins"]] == ["a vacuum tube"]


def test_a_folder_with_records_is_not_written_over(call, tmp_path):
    mine = write_records(tmp_path / "mine", {"a vacuum tube": [8]})
    result = call("records", mine, "-o", mine)
    assert result.exit_code == 1
    assert "there are records here; choose another folder" in result.stderr


def test_nothing_that_matches_is_not_written(call, refused, tmp_path):
    mine = write_records(tmp_path / "mine", {"a vacuum tube": [8]})
    there = f"there are those of a vacuum tube with TVM {tvm.__version__}"
    assert refused("records", mine, "--device", "zzz", "--needed", "-o", "zz.json") == (
        f"error: zz.json: not written, no record matches --device 'zzz' --needed; {there}"
    )
    result = call("records", mine, "--here")
    assert result.exit_code == 0
    assert f"no record matches --here; {there}" in result.stdout


def test_no_records_at_all(refused, tmp_path):
    mine = write_records(tmp_path / "mine", {})
    assert refused("records", mine, "-o", "zz.json") == (
        "error: zz.json: not written, there are no records of any operator"
    )
    said = "there are no records of any operator here"
    with pytest.warns(RecordsWarning, match=f"{mine}: {said}"):
        Database(mine).tuned(vdevice_for(), 0.0)


ADVICE = "give a folder of tvm-rammer tune, or a file of tvm-rammer records, that you may read"


def test_no_such_file(refused):
    assert refused("records", "missing.json") == (
        "error: missing.json: records of the tuner cannot be read: No such file or directory; "
        + ADVICE
    )


@pytest.mark.parametrize("in_folder", [False, True])
def test_records_that_one_may_not_read(refused, tmp_path, monkeypatch, in_folder):
    """The user root may read all."""
    mine = write_records(tmp_path / "mine", {"a vacuum tube": [8]})
    path = mine / RECORDS
    if not in_folder:
        mine = path = tmp_path / "mine.json"
        path.write_text("{}")
    read = Path.read_text

    def read_text(self, *args, **kwargs):
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return read(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert refused("records", mine) == (
        f"error: {path}: records of the tuner cannot be read: Permission denied; {ADVICE}"
    )


def test_a_name_that_is_too_long(refused):
    long = "a" * 300
    assert refused("records", long) == (
        f"error: {long}: records of the tuner cannot be read: File name too long; {ADVICE}"
    )
    assert refused("tune", "--status", long) == (
        f"error: {long}: nothing was tuned here (no tuning.log with results)"
    )


def test_a_file_without_records(call, tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    result = call("records", path)
    assert result.exit_code == 1
    assert "holds no records of the tuner; give a folder" in result.stderr
