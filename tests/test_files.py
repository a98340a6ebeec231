"""A file appears whole or not at all, under a name that nobody can guess; nothing stays behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_rammer import whole_files
from tvm_rammer.commands.files import require_writable, write_file
from tvm_rammer.errors import InputError
from tvm_rammer.whole_files import remove_unfinished, working_folder, write_whole


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_permissions_are_those_that_the_umask_leaves(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "a", b"text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert names(tmp_path) == ["a"]


def test_names_of_unfinished_files_differ_and_are_new(tmp_path, monkeypatch):
    """Something that is there already, a link for example, is never opened for writing."""
    seen = []
    made = os.open

    def spy(path, flags, *mode):
        if flags & os.O_CREAT:
            seen.append(Path(path).name)
            assert flags & os.O_EXCL
        return made(path, flags, *mode)

    monkeypatch.setattr(os, "open", spy)
    for _ in range(3):
        write_whole(tmp_path / "a", b"text")
    assert len(set(seen)) == 3
    assert all(len(name) == len(".rammer-") + 16 for name in seen)


def test_a_link_in_its_place_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "a").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "a", b"text")
    assert (tmp_path / "target").read_text() == "precious"
    assert (tmp_path / "a").read_text() == "text"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt(), ValueError()])
def test_nothing_is_left_after_an_error(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)):
        write_whole(tmp_path / "a", b"text")
    with pytest.raises(type(error)), working_folder(tmp_path) as folder:
        (folder / "inside").write_text("x")
        fail()
    assert names(tmp_path) == []


BUSY = """
import os, sys, time
from pathlib import Path
from tvm_rammer import whole_files

def stay(*_):
    print(flush=True)
    time.sleep(60)

os.replace = stay
if sys.argv[1] == "file":
    whole_files.write_whole(Path("a"), b"text")
else:
    with whole_files.working_folder(Path()) as folder:
        (folder / "inside").write_text("x")
        stay()
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path, what):
    command = [sys.executable, "-c", BUSY, what]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as busy:
        busy.stdout.readline()
        (left,) = names(tmp_path)
        write_whole(tmp_path / "b", b"text")
        assert names(tmp_path) == [left, "b"]  # somebody is at work there
        busy.send_signal(signal.SIGKILL)
    assert names(tmp_path) == [left, "b"]
    write_whole(tmp_path / "b", b"text")
    assert names(tmp_path) == ["b"]


GONE = """
import os, signal, sys
from pathlib import Path
from tvm_rammer import whole_files

signal.alarm(20)
os.rmdir(os.getcwd())
try:
    if sys.argv[1] == "folder":
        with whole_files.working_folder(Path(".")):
            pass
    else:
        whole_files.write_whole(Path(sys.argv[1]), b"")
except FileNotFoundError:
    print("no such folder")
"""


@pytest.mark.parametrize("what", ["folder", "m.so", "/dev/fd/x.so"])
def test_a_folder_in_which_nothing_can_be_made_is_an_error(tmp_path, what):
    (tmp_path / "gone").mkdir()
    command = [sys.executable, "-c", GONE, what]
    done = subprocess.run(command, cwd=tmp_path / "gone", stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("no such folder\n", 0)


def test_a_child_of_fork_keeps_no_lock(tmp_path):
    reader, writer = os.pipe()
    with working_folder(tmp_path) as folder:
        handle = os.open(folder, os.O_RDONLY)
        if (child := os.fork()) == 0:
            os.read(reader, 1)
            os._exit(0)
    try:
        assert whole_files.try_lock(handle)
    finally:
        os.write(writer, b".")
        os.waitpid(child, 0)
        for each in (handle, reader, writer):
            os.close(each)


def test_only_what_is_ours_is_removed(tmp_path):
    for name in (".rammer-mine", ".rammer-0123456789abcdef.txt", "rammer-0123456789abcdef"):
        (tmp_path / name).write_text("")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".rammer-0123456789abcdef").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / ".rammer-00000000000000ff")
    before = names(tmp_path)
    started = time.monotonic()
    remove_unfinished(tmp_path)
    assert names(tmp_path) == before
    assert time.monotonic() - started < 5


def test_advice_fits_the_cause(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError) as caught:
        write_file(tmp_path / "a", "text")
    assert str(caught.value) == (
        f"{tmp_path / 'a'}: cannot be written: No space left on device; "
        "make room on the disk, or choose another path"
    )


@pytest.mark.parametrize("name", ["/dev/full", "/proc/self/fd/99"])
def test_what_is_no_file_cannot_always_be_written(name):
    with pytest.raises(InputError, match=f"{name}: cannot be written: "):
        write_file(Path(name), "text")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/null", "/dev/fd/1"])
def test_streams_may_be_written_although_their_folder_may_not(monkeypatch, name):
    monkeypatch.setattr(os, "access", lambda *_: False)
    require_writable(Path(name))


def test_a_pipe_gets_the_content():
    code = (
        "from pathlib import Path\n"
        "from tvm_rammer.commands.files import write_file\n"
        "write_file(Path('/dev/stdout'), 'text')"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert run.stdout == b"text"
