"""Load on compiled models, for some seconds: what is right passes, what is wrong is told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from serving.served import Served
from serving.team import Process, Server, read_models
from serving.turn import Latencies, Turn, in_a_row, together
from serving.ways import ask

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.models import get_model

PYTHON = Path(__file__).parents[2] / "python"

needs_linker = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")


def run(script: str, *options: str, json_path: Path) -> list[dict]:
    command = [sys.executable, str(PYTHON / script), "--tiny", "--json", str(json_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(json_path.read_text())["rows"]


@needs_linker
def test_two_processes_serve_one_and_three_clients(tmp_path):
    rows = run(
        "serve_load.py",
        *("--minutes", "0.03", "--clients", "1,3", "--processes", "2", "--num-veus", "2"),
        *("--models", "recommender,mlp", "--onnxruntime"),
        json_path=tmp_path / "load.json",
    )
    servers = ("2 vEUs", "onnxruntime", "onnxruntime-1")
    expected = [(server, clients) for clients in (1, 3) for server in servers]
    assert [(row["server"], row["clients"]) for row in rows] == expected
    for row in rows:
        assert row["wrong"] == []
        assert row["runs"] == sum(model["runs"] for model in row["models"].values()) > 0
        assert row["compared"] == ("vEU" in row["server"])
        for model in row["models"].values():
            assert 0 < model["p50"] <= model["p90"] <= model["p99"] <= model["max"]


@pytest.mark.slow
@needs_linker
def test_forks_threads_and_reloads_together(tmp_path):
    rows = run(
        "serve_together.py",
        # Within two seconds memory is still taken for the first time.
        *("--minutes", "0.04", "--forked", "2", "--threads", "3", "--growth", "9"),
        *("--models", "mlp"),
        json_path=tmp_path / "together.json",
    )
    assert [row["name"] for row in rows] == [
        "2 forked workers",
        "3 threads",
        "reloaded each second",
    ]
    assert all(row["runs"] > 0 and row["wrong"] == [] for row in rows)
    assert rows[2]["loads"] >= 2


def test_other_bits_are_wrong():
    wanted = np.array([1.0, 0.0], "float32")
    model = Served("net", lambda: lambda inputs: [], ({},), ((wanted.tobytes(),),))
    turn = Turn()
    ask(model, lambda inputs: [wanted.copy()], 0, turn)
    assert (turn.runs, turn.counts["wrong"], turn.wrong) == (1, 0, [])
    ask(model, lambda inputs: [np.array([1.0, -0.0], "float32")], 0, turn)
    assert turn.counts["wrong"] == 1
    assert turn.wrong == ["net: other bits than one thread gives, inputs 0"]


def test_percentiles_are_exact_to_one_percent():
    latencies = Latencies()
    for number in range(1, 1001):
        latencies.add(number * 1e-3)
    assert latencies.percentile(50) == pytest.approx(0.5, rel=0.01)
    assert latencies.percentile(99) == pytest.approx(0.99, rel=0.01)
    assert latencies.percentile(100) == latencies.longest == 1.0
    again = Latencies.from_json(json.loads(json.dumps(latencies.to_json())))
    assert again == latencies
    assert Latencies().percentile(50) == 0


def test_turns_add_up_side_by_side_and_in_a_row():
    turns = []
    for seconds, resident in ((1.0, [10, 20]), (2.0, [1, 2])):
        turn = Turn(seconds=seconds, resident=resident)
        turn.latencies["net"] = Latencies()
        turn.latencies["net"].add(seconds)
        turns.append(Turn.from_json(json.loads(json.dumps(turn.to_json()))))
    beside, after = together(turns), in_a_row(turns)
    assert (beside.runs, beside.seconds, beside.resident) == (2, 2.0, [11, 22])
    assert (after.runs, after.seconds, after.resident) == (2, 3.0, [10, 20, 1, 2])


def test_models_are_names_and_files(tmp_path):
    path = tmp_path / "mine.onnx"
    onnx.save(get_model("mlp").tiny(), str(path))
    assert list(read_models(f"{path},lstm_8x8x256", tiny=True)) == ["mine", "lstm_8x8x256"]
    with pytest.raises(RammerError) as error:
        read_models(str(tmp_path / "no.onnx"))
    assert str(error.value).startswith(f"{tmp_path}/no.onnx: cannot be read as an ONNX model: ")


def test_a_process_that_cannot_load_says_why(tmp_path):
    server = Server("1 vEU", "rammer", (("net", str(tmp_path / "no.so"), [], []),))
    process = Process(server)
    with pytest.raises(RammerError, match=r"no\.so: no such file; export a library there first"):
        process.loaded()
    process.stop()
