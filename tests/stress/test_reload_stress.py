"""Running, reloading and forking at once, for some seconds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from stress import reload_stress

from tvm_rammer.errors import LibraryError

SCRIPT = Path(__file__).parents[2] / "python" / "stress_loading.py"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")


def test_two_seconds_of_stress():
    command = [sys.executable, SCRIPT, "--minutes", "0.04", "--threads", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert min(found[name] for name in ("runs", "loads", "children", "changed files")) > 0
    assert len(found["resident MB"]) == 10


def test_what_no_version_computes_is_found():
    versions = reload_stress._Versions((), (), (np.zeros(2).tobytes(),))

    assert versions.of(lambda: bytes(16)) == 0
    assert versions.of(lambda: bytes(15) + b"1") == -1


def test_half_a_file_is_loaded_when_it_is_whole(tmp_path, monkeypatch):
    outcomes = iter([LibraryError("half"), LibraryError("half"), None])

    def load(path: Path) -> str:
        if (error := next(outcomes)) is not None:
            raise error
        return "library"

    monkeypatch.setattr(reload_stress, "load", load)
    counts: Counter[str] = Counter()
    assert reload_stress._load(tmp_path, counts) == "library"
    assert counts == {"refused loads": 2, "loads": 1}
