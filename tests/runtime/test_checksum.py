"""A library whose file was damaged is refused, whatever the damage."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from small_models import Branches, branches, floats, python

import tvm_rammer
from tvm_rammer.errors import LibraryError
from tvm_rammer.runtime import loading
from tvm_rammer.transform import attach_description

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    library = tvm_rammer.build(Branches, policy="sequential")
    path = tmp_path_factory.mktemp("content") / "branches.so"
    return library.export_library(path).read_bytes()


def flip(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def zero(content: bytes, rng: random.Random) -> bytes:
    size = 1 << rng.randrange(4, 14)
    start = rng.randrange(len(content) - size)
    return content[:start] + bytes(size) + content[start + size :]


def swap(content: bytes, rng: random.Random) -> bytes:
    """Two blocks change places, as when a disk loses track of them."""
    size = 1 << rng.randrange(4, 13)
    one, two = sorted(rng.sample(range(0, len(content) - size, size), 2))
    first, second = content[one : one + size], content[two : two + size]
    return content[:one] + second + content[one + size : two] + first + content[two + size :]


def append(content: bytes, rng: random.Random) -> bytes:
    return content + rng.randbytes(rng.randrange(1, 100))


def load_error(path: Path) -> str:
    with pytest.raises(LibraryError) as refused:
        tvm_rammer.load(path)
    return str(refused.value)


@pytest.mark.parametrize("damage", [flip, cut, zero, swap, append])
def test_forty_damages_of_a_kind_are_refused(content, tmp_path, damage):
    rng = random.Random(damage.__name__)
    path = tmp_path / "damaged.so"
    damaged = [found for _ in range(80) if (found := damage(content, rng)) != content]
    assert len(damaged) >= 40
    for each in damaged[:40]:
        path.write_bytes(each)
        assert load_error(path).startswith(f"{path}: ")


def test_the_undamaged_library_loads(content, tmp_path):
    path = tmp_path / "whole.so"
    path.write_bytes(content)
    x, y = floats(4, 8), floats(4, 8, seed=1)
    (got,) = tvm_rammer.load(path).create()(x, y)
    assert abs(got.numpy() - branches(x, y)).max() < 1e-5


def test_a_wrong_checksum_is_said(content, tmp_path):
    path = tmp_path / "damaged.so"
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert load_error(path) == (
        f"{path}: it is damaged: its checksum is wrong; compile the model again"
    )


def test_a_missing_checksum_is_said(content, tmp_path):
    path = tmp_path / "stripped.so"
    path.write_bytes(content[:-50])
    assert load_error(path) == (
        f"{path}: it ends without a checksum, as a library of an earlier version; compile "
        "the model again"
    )


def test_a_library_of_a_format_without_checksums_is_told_its_format(tmp_path, monkeypatch):
    path = tmp_path / "old.so"
    with monkeypatch.context() as patched:
        patched.setattr(attach_description, "FORMAT_VERSION", 2)
        tvm_rammer.build(Branches, policy="sequential").export_library(path)
    path.write_bytes(path.read_bytes()[:-50])
    assert load_error(path) == (
        f"{path}: library format 2, this version reads {attach_description.FORMAT_VERSION}; "
        "compile the model again"
    )


def test_a_library_without_a_checksum_loads_by_request(content, tmp_path):
    path = tmp_path / "stripped.so"
    path.write_bytes(content[:-50])
    assert tvm_rammer.load(path, checksum=False).description.num_veus > 0


def test_tvms_runtime_takes_a_file_with_a_checksum(content, tmp_path):
    path = tmp_path / "branches.so"
    path.write_bytes(content)
    code = """
import sys
import tvm
module = tvm.runtime.load_module(sys.argv[1])
print(module.get_function("tvm_rammer_num_veus", query_imports=True)() > 0)
"""
    assert python(code, path) == "True\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_is_said(content, tmp_path, monkeypatch, number):
    path = tmp_path / "model.so"
    path.write_bytes(content)

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", fail)
    assert load_error(path) == (
        f"{path}: cannot be read: {os.strerror(number)}; make it readable, or copy it anew from "
        "where it was made"
    )


def test_memory_that_is_not_there_is_said(content, tmp_path, monkeypatch):
    path = tmp_path / "model.so"
    path.write_bytes(content)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    assert load_error(path) == (
        f"{path}: cannot be copied into memory: No space left on device; free some, or ask who "
        "runs the machine"
    )


def test_what_is_examined_is_what_is_loaded(content, tmp_path, monkeypatch):
    """A file that is cut short before it is read is refused, although it was whole before."""
    path = tmp_path / "model.so"
    path.write_bytes(content)
    made = loading.PrivateCopy

    def cut_first(name):
        os.truncate(path, len(content) // 2)
        return made(name)

    monkeypatch.setattr(loading, "PrivateCopy", cut_first)
    with pytest.raises(LibraryError) as refused:
        tvm_rammer.load(path, checksum=False)
    assert str(refused.value) == f"{path}: cut short; compile the model again"
