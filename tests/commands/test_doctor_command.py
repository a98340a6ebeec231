"""``tvm-rammer doctor``: how findings are shown, and the exit status."""

from __future__ import annotations

import json

import pytest

from tvm_rammer.backend import Finding

OK = Finding("TVM", "0.27.0")
WARN = Finding("cores", "1 usable", "warn", "use a larger machine")
BAD = Finding("tvm-ffi", "0.1.15", "bad", "pip install another")


@pytest.fixture
def found(monkeypatch):
    return lambda *findings: monkeypatch.setattr(
        "tvm_rammer.backend.cpu.host.diagnose", lambda: findings
    )


def test_all_is_well(call, found):
    found(OK)
    result = call("doctor")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["ok", "TVM", "0.27.0"],
        [],
        ["all", "is", "well"],
    ]


def test_a_warning_has_its_advice_and_is_no_failure(call, found):
    found(OK, WARN)
    result = call("doctor")
    assert result.exit_code == 0
    assert "warn  cores  1 usable" in result.stdout
    assert "use a larger machine" in result.stdout
    assert "works; 1 thing could be better" in result.stdout


def test_what_does_not_work_is_status_1(call, found):
    found(OK, WARN, BAD)
    result = call("doctor")
    assert result.exit_code == 1
    assert "1 thing to put right before anything else" in result.stdout


def test_json(call, found):
    found(OK, BAD)
    result = call("doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "ok": False,
        "findings": [
            {"topic": "TVM", "value": "0.27.0", "level": "ok", "advice": ""},
            {
                "topic": "tvm-ffi",
                "value": "0.1.15",
                "level": "bad",
                "advice": "pip install another",
            },
        ],
    }


def test_calibrate_measures_again(call, found, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "tvm_rammer.backend.cpu.host.calibrated", lambda vdevice, refresh: asked.append(refresh)
    )
    found(OK)
    call("doctor", "--calibrate")
    assert asked == [True]


def test_the_cache_is_cleared_of_what_is_ours(call, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernel_costs.json").write_text("damaged")
    (tmp_path / "photo.json").write_text("")
    assert call("doctor", "--clear-cache").stdout == (
        f"removed 1 file of measurements from {tmp_path}\n"
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "photo.json"]
    (tmp_path / "decisions.json").write_text("")
    assert json.loads(call("doctor", "--clear-cache", "--json").stdout) == {
        "cache": str(tmp_path),
        "removed": [str(tmp_path / "decisions.json")],
    }


def test_a_folder_in_the_place_of_a_file_is_not_cleared(call, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "decisions.json"
    folder.mkdir()
    result = call("doctor", "--clear-cache")
    assert (result.exit_code, result.stderr) == (
        1,
        f"error: {folder}: cannot be removed: Is a directory; remove it yourself\n",
    )
