"""Settings of all tests."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run and every machine; a slow machine is no fault.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("repeatable")

# Measurements of a loaded test machine stay out of the user's cache, and the other way round.
os.environ["TVM_RAMMER_CACHE_DIR"] = tempfile.mkdtemp(prefix="tvm-rammer-tests-")

# A pool's workers yield 300,000 times before they sleep, even after their thread has ended. Tests
# make many pools of more workers than cores; hundreds of threads would take a machine's time.
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "100"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of measurements, in which there are none."""
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    return tmp_path
