"""Which back end serves a target, and who may add one."""

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

import tvm_rammer
from tvm_rammer.backend import (
    Finding,
    backend_for,
    backend_named,
    backends,
    register_backend,
    registry,
    rules,
)
from tvm_rammer.backend.diagnose import diagnose
from tvm_rammer.errors import DeviceError, InputError

policies = sys.modules["tvm_rammer.schedule.policies"]


def plug_in(name="toaster", kinds=()):
    return SimpleNamespace(name=name, kinds=kinds)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    found = (registry._find_others, rules.find_rules, policies._find_others)
    for find in found:
        find.cache_clear()
    yield
    for find in found:
        find.cache_clear()


def offered(monkeypatch, *loads):
    """Let packages offer back ends by entry points."""
    entries = [
        SimpleNamespace(name=f"entry{k}", value=f"package{k}:make", load=load)
        for k, load in enumerate(loads)
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)


def test_processors_serve_where_nobody_gives_a_target():
    assert backend_for().name == backend_for("llvm").name == "cpu"


def test_a_back_end_is_found_by_its_name_and_by_its_kinds():
    given = plug_in(kinds=("c",))
    register_backend(given)
    assert backend_named("toaster") is backend_for("c") is backend_for("llvm", "toaster") is given
    assert next(iter(backends())) == "cpu"


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError) as refused:
        tvm_rammer.build("model.onnx", backend="toaster")
    known = ", ".join(map(repr, backends()))
    assert str(refused.value) == f"there is no back end 'toaster'; choose one of {known}"


def test_a_kind_that_nobody_serves_is_refused():
    with pytest.raises(DeviceError) as refused:
        backend_for("c")
    assert str(refused.value) == "target kind 'c' is not supported: use cuda or llvm"


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InputError) as refused:
        register_backend(plug_in("cpu"))
    assert str(refused.value) == (
        "there is a back end 'cpu' already, tvm_rammer.backend.cpu.cpu_backend.CpuBackend: "
        "give types.SimpleNamespace another name"
    )


def test_a_kind_that_is_taken_is_refused():
    with pytest.raises(InputError) as refused:
        register_backend(plug_in(kinds=("c", "llvm")))
    assert str(refused.value) == (
        "the back end 'toaster' (types.SimpleNamespace) serves targets of kind 'llvm', as 'cpu' "
        "does: take the kind out of its `kinds`, and ask for it by name (backend='toaster')"
    )


def test_other_packages_offer_theirs_by_entry_points(monkeypatch):
    offered(monkeypatch, lambda: plug_in)
    assert backend_named("toaster").name == "toaster"


def test_a_plug_in_that_raises_is_named(monkeypatch):
    def broken():
        raise ImportError("no toaster here")

    offered(monkeypatch, broken)
    with pytest.raises(InputError) as refused:
        backends()
    assert str(refused.value) == (
        "the back end 'entry0' of package0:make cannot be loaded (ImportError: no toaster here): "
        "mend or uninstall its package"
    )
    assert backend_for("llvm").name == "cpu", "who does not use it has no error"


@pytest.mark.parametrize(
    ("topic", "what"), [("back ends", "back end"), ("policies", "policy"), ("rules", "rule")]
)
def test_doctor_names_a_plug_in_that_raises(monkeypatch, topic, what):
    def broken():
        raise ImportError("no toaster here")

    offered(monkeypatch, broken)
    found = [finding for finding in diagnose() if finding.topic == topic]
    problem = (
        f"the {what} 'entry0' of package0:make cannot be loaded (ImportError: no toaster here)"
    )
    assert found == [Finding(topic, problem, "bad", "mend or uninstall its package")]
