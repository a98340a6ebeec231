"""The curve of what the last-level cache keeps, from given times of reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host import memory_sweep


@pytest.fixture
def timed(monkeypatch):
    """Sweeps of a cache of 32 MiB, with given seconds for the reads of each size."""
    device = replace(vdevice_for(), l3_bytes=32 << 20)
    monkeypatch.setattr(memory_sweep, "vdevice_of", lambda: device)

    def sweeps(seconds):
        monkeypatch.setattr(memory_sweep, "_seconds", seconds)
        return memory_sweep.sweeps(1)

    return sweeps


def test_the_smallest_size_is_all_there_and_the_largest_is_lost(timed):
    """Reads of more than 16 pieces, of a MiB each, take four times as long."""
    found = timed(lambda reads: len(reads) * (4e-5 if len(reads) > 16 else 1e-5))
    shares = [share for _, share in found["missing"]]
    assert shares == pytest.approx([0, 0, 0, 0, 1, 1, 1, 1])
    assert found["bandwidth"] == pytest.approx((1 << 20) / 4e-5)


def test_there_is_no_curve_where_memory_seemed_as_fast_as_the_cache(timed):
    assert timed(lambda reads: len(reads) * 1e-5)["missing"] == []
