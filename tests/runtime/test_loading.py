"""What is loaded is what the file holds now; what is used no more is gone."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import tvm
from small_models import python
from tvm import relax

import tvm_rammer
from tvm_rammer.errors import LibraryError
from tvm_rammer.runtime.checksum import seal
from tvm_rammer.runtime.library import Library
from tvm_rammer.testing import models

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")

#: Elements of the constant that a version of the model adds: 4 MB.
SIZE = 1 << 20
FIRST = np.float32(1234567.0)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a model that adds :data:`FIRST`, without its checksum."""
    g = models.GraphBuilder("add")
    weights = g.initialiser(np.full((1, SIZE), FIRST))
    g.output("y", g.op("Add", g.input("x", (1, SIZE)), weights))
    library = tvm_rammer.build(g.build(), policy="sequential")
    path = tmp_path_factory.mktemp("content") / "add.so"
    library.executable.export_library(str(path))
    return path.read_bytes()


def write_version(content: bytes, number: int, path: Path) -> None:
    """A library that adds ``number``."""
    old = np.full(SIZE, FIRST).tobytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, np.full(SIZE, number, np.float32).tobytes()))
    seal(path)


def added(library: Library) -> float:
    """What a library adds to zeros."""
    (y,) = library.create()(np.zeros((1, SIZE), "float32"))
    assert y.numpy().min() == y.numpy().max()
    return float(y.numpy()[0, 0])


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def mapped() -> int:
    """Loaded libraries that run from memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("r-xp" in line and "/memfd:" in line for line in lines)


@pytest.fixture
def others() -> int:
    """Libraries that other tests hold, without those of errors that are only in a cycle."""
    gc.collect()
    return mapped()


# The content counts


def test_fifty_versions_under_one_path_and_the_memory_of_one(content, tmp_path, others):
    path, other = tmp_path / "model.so", tmp_path / "other.so"
    write_version(content, 0, path)
    assert added(tvm_rammer.load(path)) == 0
    descriptors = len(os.listdir("/proc/self/fd"))
    for number in range(1, 51):
        if number % 2:
            write_version(content, number, path)  # into the same file
        else:
            write_version(content, number, other)  # another file of the same name
            other.replace(path)
        assert added(tvm_rammer.load(path)) == number
        assert mapped() == others
        if number == 5:
            before = resident()
    # What the allocator keeps for itself; 45 versions have 180 MB of constants.
    assert resident() - before < 40 << 20
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_library_in_use_stays_what_it_is_when_its_file_is_overwritten(content, tmp_path):
    path = tmp_path / "model.so"
    write_version(content, 1, path)
    old = tvm_rammer.load(path)
    write_version(content, 2, path)
    new = tvm_rammer.load(path)
    path.write_bytes(b"")
    assert [added(old), added(new), added(old)] == [1, 2, 1]


def test_the_same_content_is_one_library_while_it_is_in_use(content, tmp_path, others):
    one, two = tmp_path / "one.so", tmp_path / "two.so"
    write_version(content, 1, one)
    write_version(content, 1, two)
    first = tvm_rammer.load(one)
    assert tvm_rammer.load(two) is first
    instance = first.create()
    del first
    again = tvm_rammer.load(one)
    assert mapped() == others + 1
    del again, instance
    assert mapped() == others


def test_what_was_not_checked_is_not_shared(content, tmp_path):
    path = tmp_path / "model.so"
    write_version(content, 1, path)
    unchecked = tvm_rammer.load(path, checksum=False)
    assert tvm_rammer.load(path) is not unchecked
    assert added(unchecked) == 1


def test_a_function_outlives_the_library_that_it_is_of(content, tmp_path, others):
    path = tmp_path / "model.so"
    write_version(content, 3, path)
    machine = relax.VirtualMachine(tvm_rammer.load(path).executable, tvm.cpu())
    x = tvm.runtime.tensor(np.zeros((1, SIZE), "float32"))
    for number in (4, 5):
        # The number of its file is given to others now.
        write_version(content, number, path)
        assert added(tvm_rammer.load(path)) == number
    assert machine["main"](x).numpy()[0, 0] == 3
    del machine
    assert mapped() == others


def test_threads_load_one_content_and_share_it(content, tmp_path, others):
    path = tmp_path / "model.so"
    write_version(content, 1, path)
    found: list[Library] = []
    threads = [
        threading.Thread(target=lambda: found.append(tvm_rammer.load(path))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert mapped() == others + 1


def test_the_constants_of_a_loaded_library_are_in_memory_once(content, tmp_path):
    path = tmp_path / "model.so"
    write_version(content, 1, path)
    code = """
import sys
import numpy as np
import tvm_rammer
library = tvm_rammer.load(sys.argv[1])
for line in open("/proc/self/smaps"):
    if "-" in line.split()[0]:
        ours = "/memfd:" in line
    elif ours and line.startswith("Rss:"):
        print(line.split()[1])
"""
    kilobytes = sum(map(int, python(code, path).split()))
    assert 0 < kilobytes < 400


def test_libgccs_table_of_threads_does_not_grow(content, tmp_path):
    path = tmp_path / "model.so"
    libgcc = ctypes.CDLL("libgcc_s.so.1")

    def next_place() -> int:
        variable = (ctypes.c_int64 * 4)(4, 4, 0, 0)
        libgcc.__emutls_get_address(variable)
        return variable[2]

    def run(number: int) -> None:
        write_version(content, number, path)
        machine = relax.VirtualMachine(tvm_rammer.load(path).executable, tvm.cpu())
        machine["main"](tvm.runtime.tensor(np.zeros((1, SIZE), "float32")))

    run(0)
    before = next_place()
    for number in range(3):
        run(number)
    assert next_place() == before + 1


# Surroundings


WITHOUT_FOLDERS = """
import os, sys
import tvm_rammer
library = tvm_rammer.load(sys.argv[1])
os.closerange(3, 100)  # as a process does that becomes a daemon
other = os.open("/dev/null", os.O_RDONLY)
library.create().run()
del library
os.fstat(other)
print("ran")
"""


def test_no_folder_is_needed_and_descriptors_may_go(content, tmp_path):
    path = tmp_path / "model.so"
    write_version(content, 1, path)
    assert python(WITHOUT_FOLDERS, path, TMPDIR="/nowhere") == "ran\n"


def test_a_machine_without_files_in_memory(content, tmp_path, monkeypatch):
    path = tmp_path / "model.so"
    write_version(content, 1, path)

    def refused(name: str) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("tvm_rammer.runtime.private_copy.memory_file", refused)
    with pytest.raises(LibraryError) as error:
        tvm_rammer.load(path)
    assert str(error.value) == (
        f"{path}: cannot be copied into memory: Cannot allocate memory; free some, or ask who "
        "runs the machine"
    )
