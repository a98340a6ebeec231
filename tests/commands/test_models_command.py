"""``tvm-rammer models``: the list, the files, and names that do not exist."""

from __future__ import annotations

import importlib
import json

import onnx
import pytest

from tvm_rammer.testing.models import MODELS, get_model, known_statistics, statistics

#: The module, whose name in the package is the function's.
COUNTING = importlib.import_module(statistics.__module__)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path / "cache"))


def test_all_models_are_listed(call):
    result = call("models", "--tiny", "--json")
    assert list(json.loads(result.stdout)["models"]) == list(MODELS)


def test_a_model_is_listed_with_its_counts(call):
    result = call("models", "recommender")
    header, row, _, about = result.stdout.splitlines()
    assert header.split() == [
        *("model", "operators", "width", "depth", "parallelism", "GFLOP", "M", "weights")
    ]
    assert row.split() == ["recommender", "295", "32", "16", "6.3", "0.00396", "1.98"]
    assert about.strip() == f"recommender  {get_model('recommender').description}"


def test_counts_are_kept(monkeypatch):
    """A second list builds nothing, and gives the same."""
    info = get_model("recommender")
    first = known_statistics(info)
    assert first == statistics(info.build())
    monkeypatch.setattr(COUNTING, "statistics", lambda model: pytest.fail("counted again"))
    assert known_statistics(info) == first


def test_counts_of_other_builders_are_not_trusted(monkeypatch):
    info = get_model("recommender")
    wrong = statistics(get_model("mlp").build())
    with monkeypatch.context() as patch:
        patch.setattr(COUNTING, "_builders", lambda: "older")
        patch.setattr(COUNTING, "statistics", lambda model: wrong)
        assert known_statistics(info, tiny=True) == wrong
    assert known_statistics(info, tiny=True) == statistics(info.tiny())


def test_a_model_is_written(call, tmp_path):
    result = call("models", "lstm_8x8x256", "--tiny", "-o", "lstm.onnx", "--json")
    document = json.loads(result.stdout)
    path = tmp_path / "lstm.onnx"
    assert document == {
        "model": "lstm_8x8x256",
        "path": "lstm.onnx",
        "bytes": path.stat().st_size,
    }
    onnx.checker.check_model(onnx.load(path))
    assert path.read_bytes() == get_model("lstm_8x8x256").tiny().SerializeToString()


def test_an_unknown_name(refused):
    message = "error: there is no model 'incepton_v3'; did you mean 'inception_v3'?"
    assert refused("models", "incepton_v3") == message


def test_one_file_for_many_models(refused):
    assert refused("models", "mlp", "alexnet", "-o", "x.onnx") == (
        "error: -o x.onnx takes the name of one model; 2 are given"
    )
