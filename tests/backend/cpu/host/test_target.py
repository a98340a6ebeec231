"""A target is checked before LLVM sees it, and described by asking for features."""

import platform

import pytest
from tvm.target import Target

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.host import cpu_target, host_cpu, host_target
from tvm_rammer.backend.cpu.templates.register_tile import register_tile
from tvm_rammer.errors import DeviceError
from tvm_rammer.machine import OversubscriptionWarning
from tvm_rammer.machine.speeds import Speeds

pytestmark = pytest.mark.usefixtures("empty_cache")


def x86(mcpu: str, **more) -> dict:
    return {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu, **more}


def arm(mcpu: str, **more) -> dict:
    return {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": mcpu, **more}


def test_no_target_is_this_machine():
    assert resolve_target(None) is host_target()
    assert host_target().attrs["num-cores"] == host_cpu().cores
    vdevice = vdevice_for()
    assert vdevice.host
    assert (vdevice.num_veus, vdevice.cores) == (host_cpu().cores, host_cpu().cores)
    assert vdevice.name == f"{host_cpu().model} ({host_target().attrs['mcpu']})"


def test_a_target_object_stays_itself():
    made = Target(x86("haswell"))
    assert resolve_target(made) is made
    assert resolve_target('{"kind": "llvm", "mcpu": "generic"}').attrs["mcpu"] == "generic"


@pytest.mark.parametrize(
    ("described", "width", "registers"),
    [
        (x86("znver4"), 64, 32),
        (x86("skylake-avx512"), 64, 32),
        (x86("haswell"), 32, 16),
        (x86("nehalem"), 16, 16),
        (x86("znver4", mattr=["-avx512f"]), 32, 16),
        (arm("neoverse-n1"), 16, 32),
    ],
)
def test_vector_registers(described, width, registers):
    vdevice = vdevice_for({**described, "num-cores": 64})
    assert (vdevice.vector_bytes, vdevice.vector_registers) == (width, registers)


@pytest.mark.parametrize(
    ("mcpu", "tile"),
    [
        ("znver4", "8 x 3 vectors of 8"),
        ("znver5", "7 x 2 vectors of 16"),
        ("sapphirerapids", "7 x 2 vectors of 16"),
        ("icelake-client", "8 x 3 vectors of 8"),
    ],
)
def test_half_vectors_pay_where_they_take_half_of_the_time(mcpu, tile):
    """Of 24 columns: three halves, or two whole ones that overlap."""
    assert str(register_tile(56, 24, vdevice_for(x86(mcpu)))) == tile


def test_a_level_that_this_machine_reaches_is_as_fast(monkeypatch):
    monkeypatch.setattr(cpu_target, "FULL_WIDTH", (host_target().attrs["mcpu"],))
    level = {"kind": "llvm", "mtriple": host_target().attrs["mtriple"], "mcpu": "generic"}
    assert vdevice_for(level).speeds == vdevice_for().speeds != Speeds()


def test_a_foreign_device_has_its_own_cores_and_no_measured_costs():
    vdevice = vdevice_for(arm("neoverse-n1", **{"num-cores": 64}), num_veus=48)
    assert (vdevice.name, vdevice.num_veus, vdevice.cores) == ("neoverse-n1 CPU", 48, 64)
    assert not vdevice.host
    assert not vdevice.calibrated
    assert "dotprod" in vdevice.features


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86")
def test_a_level_that_this_machine_reaches_is_this_machine():
    assert vdevice_for(x86("x86-64")).host
    assert vdevice_for(x86("x86-64")).vector_bytes == 16
    assert not vdevice_for(x86("x86-64", mattr=["+amx-tile", "+avxvnni"])).host


def test_more_cores_than_here_is_another_machine():
    bigger = {**dict(host_target().attrs), "kind": "llvm", "num-cores": 4096}
    assert not vdevice_for(bigger).host


def test_more_veus_than_the_machine_has_are_refused_unless_asked_for():
    too_many = host_cpu().threads + 1
    with pytest.raises(DeviceError, match=r"^num_veus is \d+, but .* ask for at most \d+, or pass"):
        vdevice_for(num_veus=too_many)
    with pytest.warns(OversubscriptionWarning):
        assert vdevice_for(num_veus=too_many, oversubscribe=True).num_veus == too_many


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("c", "target kind 'c' is not supported: use cuda or llvm"),
        (
            "gpu9",
            "'gpu9' is not a target: Target kind \"gpu9\" is not defined; "
            "leave it out for this machine",
        ),
        ("", "'' is not a target: Target kind \"\" is not defined"),
        (
            "llvm -mcpu=znver4 -num-cores=4",
            "'llvm -mcpu=znver4 -num-cores=4' is not a target: write it as "
            '\'{"kind": "llvm", "mcpu": "znver4", "num-cores": 4}\'',
        ),
        (
            x86("zenver4"),
            "LLVM knows no x86_64 CPU 'zenver4' (near: 'znver4', 'znver5', 'znver3'): "
            "choose one of alderlake, amdfam10, ",
        ),
        (
            arm("qqqqq"),
            "LLVM knows no aarch64 CPU 'qqqqq': choose one of a64fx, ",
        ),
        (
            {"kind": "llvm", "mtriple": "riscv64-linux-gnu"},
            "architecture 'riscv64' of target triple 'riscv64-linux-gnu' is not supported: "
            "use x86_64 or aarch64",
        ),
        (
            {"kind": "llvm", "num-cores": 0},
            "num-cores of the target is 0: it must be at least 1",
        ),
        (7, "7 is not a target: target has to be a string or dictionary. "),
    ],
)
def test_a_wrong_target_is_one_line(wrong, message):
    with pytest.raises(DeviceError) as caught:
        resolve_target(wrong)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_features_that_a_hypervisor_hides_are_switched_off(monkeypatch):
    monkeypatch.setattr(cpu_target, "_hidden_features", lambda described: ["avx512f", "avx2"])
    hidden = host_target.__wrapped__()
    assert list(hidden.attrs["mattr"]) == ["-avx512f", "-avx2"]
    assert not {"avx512f", "avx512bw", "avx2"} & set(cpu_target.target_features(hidden))


def test_a_cpu_name_that_promises_more_than_the_machine_has_is_found_out():
    # No CPU has all of these: the newest names differ in what they have.
    promised = set(cpu_target._hidden_features(Target(x86("diamondrapids"))))
    promised |= set(cpu_target._hidden_features(Target(x86("bdver4"))))
    if cpu_target.architecture(host_target()) == "x86_64":
        assert promised
        assert not promised & set(cpu_target.target_features(host_target()))


def test_more_cores_than_any_machine_has_are_refused():
    target = {"kind": "llvm", "mcpu": "core-avx2", "num-cores": 100_000}
    with pytest.raises(DeviceError) as refused:
        vdevice_for(target)
    assert str(refused.value) == (
        "100,000 vEUs are more than a plan may have: give the target num-cores of at most 16,384, "
        "or a smaller num_veus"
    )
    assert vdevice_for(target, 64).num_veus == 64
