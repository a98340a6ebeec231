"""The cache is a convenience: whatever is wrong with its folder, work goes on and nothing hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_rammer.machine import CacheFile, CacheFolder, cache_directory, clear_cache
from tvm_rammer.machine import cache as module

TIMES = CacheFile("decisions.json", float)
SINGLE = CacheFolder("decisions", float)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


def warning(call) -> str:
    with pytest.warns(UserWarning) as caught:
        call()
    (one,) = {str(each.message) for each in caught}
    return one


def test_what_was_added_is_loaded(folder):
    assert TIMES.load() == {}
    TIMES.add({"x": 1.5})
    TIMES.add({"y": 2, "x": 3})
    assert TIMES.load() == {"y": 2.0, "x": 3.0}
    assert os.listdir(folder) == ["decisions.json"]


def test_the_oldest_entries_are_dropped(folder):
    few = CacheFile("decisions.json", int, most=2)
    for number in range(4):
        few.add({str(number): number})
    assert few.load() == {"2": 2, "3": 3}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, 10**400])
def test_what_is_no_entry_is_not_kept(folder, value):
    TIMES.add({"x": value, "y": 1.0})
    assert TIMES.load() == {"y": 1.0}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"x": Infinity}', "Infinity is not a number"),
        ('{"x": 1, "x": 2}', "the key 'x' is there twice"),
        pytest.param(
            '{"x": ' + "9" * 10_000 + "}",
            "Exceeds the limit",
            marks=pytest.mark.skipif(
                not hasattr(sys, "get_int_max_str_digits"), reason="this Python reads any number"
            ),
        ),
        ("\x00", "Expecting value"),
        (b'"\xff"', "'utf-8' codec can't decode"),
    ],
)
def test_a_file_that_is_no_json_is_ignored_and_named_and_replaced(folder, content, cause):
    TIMES.add({"x": 1.0})
    path = folder / "decisions.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = warning(TIMES.load)
    assert text.startswith(f"{path} cannot be read and is ignored ({cause}")
    assert text.endswith("); remove it")
    warning(lambda: TIMES.add({"y": 2.0}))
    assert TIMES.load() == {"y": 2.0}


def test_a_list_is_ignored_and_named(folder):
    TIMES.add({"x": 1.0})
    path = folder / "decisions.json"
    path.write_text("[1]")
    assert warning(TIMES.load) == f"{path} holds no measurements and is ignored; remove it"


@pytest.mark.parametrize("value", [10**400, 1e999, "1", None, [], {}, True])
def test_one_bad_entry_does_not_cost_the_others(folder, value):
    TIMES.add({"x": 1.0})
    path = folder / "decisions.json"
    text = json.dumps({"x": 1.0, "bad": value}).replace("Infinity", "1e999")
    path.write_text(text)
    found = warning(lambda: TIMES.load() == {"x": 1.0} or pytest.fail())
    assert found.startswith(f"{path}: 1 measurement cannot be used and is ignored (of 'bad' it is ")
    assert found.endswith("; it must be a number)")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_terminal(path: Path) -> None:
    if not os.path.exists("/dev/ptmx"):
        pytest.skip("there are no terminals")
    path.symlink_to("/dev/ptmx")


@pytest.mark.parametrize("make", [make_pipe, make_device, make_terminal, Path.mkdir])
def test_what_is_no_file_is_no_wait(folder, make):
    folder.mkdir(parents=True)
    path = folder / "decisions.json"
    make(path)
    assert "cannot be read and is ignored (" in warning(TIMES.load)
    assert str(path) in warning(TIMES.load)
    with pytest.warns(UserWarning):
        TIMES.add({"x": 1.0})
    if path.is_dir():
        assert os.listdir(folder) == ["decisions.json"]
    else:
        assert TIMES.load() == {"x": 1.0}


def test_a_folder_in_its_place_costs_no_descriptor(folder):
    (folder / "decisions.json").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        warning(TIMES.load)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_entry_that_is_nested_deeply_does_not_cost_the_others(folder):
    TIMES.add({"x": 1.0})
    path = folder / "decisions.json"
    causes = set()
    # From where everything can be done with it to where it cannot be read.
    for depth in range(700, 1100):
        path.write_text('{"x": 1.0, "deep": ' + "[" * depth + "]" * depth + "}")
        text = warning(TIMES.load)
        causes.add(text[text.index("(") :])
    assert causes <= {
        f"(of 'deep' it is {'[' * 37}...; it must be a number)",
        "(of 'deep' it is nested too deeply; it must be a number)",
        "(it is nested too deeply); remove it",
    }


def test_a_child_of_fork_does_not_keep_the_lock(folder):
    folder.mkdir(parents=True)
    with module._lock(folder):
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.read(reader, 1)
            os._exit(0)
    try:
        handle = os.open(folder, os.O_RDONLY)
        assert module._try_lock(handle)
        os.close(handle)
    finally:
        os.write(writer, b".")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_a_file_of_another_size_is_ignored(folder):
    folder.mkdir(parents=True)
    path = folder / "decisions.json"
    path.touch()
    os.truncate(path, 1 << 40)
    assert warning(TIMES.load) == (
        f"{path} cannot be read and is ignored (it has 1099511627776 bytes); remove it"
    )


def test_a_failing_write_leaves_the_old_file_and_nothing_else(folder, monkeypatch):
    TIMES.add({"x": 1.0})

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(UserWarning, match="No space left on device"):
        TIMES.add({"x": 2.0})
    assert TIMES.load() == {"x": 1.0}
    assert os.listdir(folder) == ["decisions.json"]


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(folder))
    assert warning(lambda: TIMES.add({"x": 1.0})) == (
        f"measurements are not kept, as {folder} cannot be written (Not a directory): "
        "set TVM_RAMMER_CACHE_DIR to a folder that can"
    )
    assert TIMES.load() == {}


WRITER = """
import sys
from tvm_rammer.machine.cache import CacheFile

for number in range(int(sys.argv[2])):
    CacheFile("decisions.json", float).add({f"{sys.argv[1]} {number}": 1.0})
    print(number, flush=True)
"""


SINGLE_WRITER = """
import sys
from tvm_rammer.machine.cache import CacheFolder

for number in range(int(sys.argv[2])):
    CacheFolder("decisions", float, most=100_000).put(f"{sys.argv[1]} {number}", 1.0)
    print(number, flush=True)
"""


def writer(name: str, entries: int, program: str = WRITER) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, name, str(entries)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_four_writers_lose_nothing(folder):
    writers = [writer(str(number), 100) for number in range(4)]
    assert [each.wait() for each in writers] == [0] * 4
    for each in writers:
        each.stdout.close()
    assert len(TIMES.load()) == 400


def test_killed_writers_lose_nothing_and_leave_nothing(folder):
    """What a writer has said that it wrote is there, whatever became of it and of the others."""
    steady = writer("steady", 60)
    killed = [writer(f"killed {number}", 10_000) for number in range(3)]
    said = {}
    for number, each in enumerate(killed):
        for _ in range(5 + 7 * number):
            said[number] = each.stdout.readline()
        each.send_signal(signal.SIGKILL)
        said[number] = (each.stdout.read().splitlines() or [said[number]])[-1]
        each.stdout.close()
        each.wait()
    assert steady.wait() == 0
    steady.stdout.close()
    found = TIMES.load()
    for number, last in said.items():
        assert all(f"killed {number} {each}" in found for each in range(int(last) + 1))
    assert all(f"steady {each}" in found for each in range(60))
    TIMES.add({"x": 1.0})
    assert os.listdir(folder) == ["decisions.json"]


def test_a_writer_that_is_stopped_does_not_stop_others(folder, monkeypatch):
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.1)
    folder.mkdir(parents=True)
    with module._lock(folder):
        started = time.monotonic()
        text = warning(lambda: TIMES.add({"x": 1.0}))
        assert time.monotonic() - started < 5
    assert text.startswith(
        f"measurements are not kept, as {folder} cannot be written (another process has locked it)"
    )


def single_file(folder: Path) -> Path:
    """That of the entry ``x``."""
    SINGLE.put("x", 1.5)
    (path,) = (folder / "decisions").iterdir()
    return path


def test_an_entry_with_a_file_of_its_own_comes_back(folder):
    assert SINGLE.get("x") is None
    SINGLE.put("x", 1.5)
    SINGLE.put("y", 2)
    SINGLE.put("x", 3)
    assert (SINGLE.get("x"), SINGLE.get("y"), SINGLE.get("z")) == (3.0, 2.0, None)
    assert len(os.listdir(folder / "decisions")) == 2


def test_the_files_that_were_written_first_are_dropped(folder):
    few = CacheFolder("decisions", int, most=2)
    for number in range(4):
        few.put(str(number), number)
        for path in (folder / "decisions").iterdir():  # clocks of file systems are coarse
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    assert [few.get(str(number)) for number in range(4)] == [None, None, 2, 3]


@pytest.mark.parametrize("value", [float("nan"), "1", None, 10**400])
def test_what_is_no_entry_gets_no_file(folder, value):
    SINGLE.put("x", value)
    assert not folder.exists()


def test_the_file_of_another_entry_is_ignored_and_named(folder):
    path = single_file(folder)
    path.write_text(path.read_text().replace('"x"', '"y"'))
    assert warning(lambda: SINGLE.get("x") is None or pytest.fail()) == (
        f"{path} cannot be used and is ignored (it is that of 'y'); remove it"
    )


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "cannot be read and is ignored (Expecting value: line 1 column 1 (char 0))"),
        ("[" * 100_000, "cannot be read and is ignored (it is nested too deeply)"),
        ("[1]", "cannot be used and is ignored (it is [1]; it must be an object)"),
        ('{"key": "x"}', "cannot be used and is ignored (it lacks the key 'entry'; add it)"),
        (
            '{"key": "x", "entry": "1"}',
            'cannot be used and is ignored (it is "1"; it must be a number)',
        ),
    ],
)
def test_a_damaged_file_is_ignored_and_named_and_replaced(folder, content, cause):
    path = single_file(folder)
    path.write_text(content)
    assert warning(lambda: SINGLE.get("x") is None or pytest.fail()) == f"{path} {cause}; remove it"
    SINGLE.put("x", 2.0)
    assert SINGLE.get("x") == 2.0


@pytest.mark.parametrize("make", [make_pipe, make_device, make_terminal, Path.mkdir])
def test_what_is_no_file_of_an_entry_is_no_wait(folder, make):
    path = single_file(folder)
    path.unlink()
    make(path)
    assert f"{path} cannot be read and is ignored (" in warning(lambda: SINGLE.get("x"))


def test_a_file_in_place_of_the_folder_costs_one_warning(folder):
    folder.mkdir(parents=True)
    (folder / "decisions").write_text("")
    assert SINGLE.get("x") is None
    assert warning(lambda: SINGLE.put("x", 1.0)) == (
        f"measurements are not kept, as {folder / 'decisions'} cannot be written (File exists): "
        "set TVM_RAMMER_CACHE_DIR to a folder that can"
    )


def test_killed_writers_of_single_entries_lose_nothing_and_leave_nothing(folder):
    writers = [writer(f"killed {number}", 10_000, SINGLE_WRITER) for number in range(4)]
    said = []
    for number, each in enumerate(writers):
        lines = [each.stdout.readline() for _ in range(5 + 7 * number)]
        each.send_signal(signal.SIGKILL)
        said.append(int([*lines, *each.stdout.read().splitlines()][-1]))
        each.stdout.close()
        each.wait()
    large = CacheFolder("decisions", float, most=100_000)
    for number, last in enumerate(said):
        assert all(large.get(f"killed {number} {each}") == 1.0 for each in range(last + 1))
    large.put("x", 1.0)
    assert all(name.endswith(".json") for name in os.listdir(folder / "decisions"))


def test_clearing_takes_what_is_ours(folder):
    TIMES.add({"x": 1.0})
    (folder / "mine.json").write_text("")
    (folder / "ceilings-0123456789abcdef.json").write_text("")
    removed = clear_cache()
    assert [path.name for path in removed] == ["ceilings-0123456789abcdef.json", "decisions.json"]
    assert os.listdir(folder) == ["mine.json"]
    single = single_file(folder)
    assert clear_cache() == [single]
    assert os.listdir(folder) == ["mine.json"]
    assert clear_cache() == []


def test_without_the_variable_it_is_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("TVM_RAMMER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(cache_directory()) == "/somewhere/tvm-rammer"
