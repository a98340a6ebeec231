"""The cache is a convenience: whatever is wrong with its folder, work goes on."""

import os

import pytest

from tvm_rammer.vdevice import cache_directory, load_json, store_json


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


def test_what_was_stored_is_loaded(folder):
    assert load_json("a.json") is None
    store_json("a.json", {"x": [1, 2.5]})
    assert load_json("a.json") == {"x": [1, 2.5]}
    assert os.listdir(folder) == ["a.json"]


def test_a_failing_store_leaves_the_old_file_and_nothing_else(folder, monkeypatch):
    store_json("a.json", "old")

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(UserWarning, match="No space left on device"):
        store_json("a.json", "new")
    assert load_json("a.json") == "old"
    assert os.listdir(folder) == ["a.json"]


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(folder))
    with pytest.warns(UserWarning) as caught:
        store_json("a.json", 1)
    assert [str(warning.message) for warning in caught] == [
        f"measurements are not kept, as {folder} cannot be written (Not a directory): "
        "set TVM_RAMMER_CACHE_DIR to a folder that can"
    ]
    assert load_json("a.json") is None


def test_without_the_variable_it_is_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("TVM_RAMMER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(cache_directory()) == "/somewhere/tvm-rammer"
