"""The doctor tells what hurts, and survives whatever is broken."""

import dataclasses

import pytest
from tvm.support import cc

from tvm_rammer.backend import Finding
from tvm_rammer.backend.cpu.host import HostCPU, diagnose, diagnosis, host_cpu
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.topology import PairCosts, topology_of


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    monkeypatch.setattr(diagnosis, "calibrated", lambda vdevice: vdevice)


def finding(topic: str) -> Finding:
    (found,) = [each for each in diagnose() if each.topic == topic]
    return found


def on_host(monkeypatch, **changes) -> HostCPU:
    host = dataclasses.replace(host_cpu(), **changes)
    monkeypatch.setattr(diagnosis, "host_cpu", lambda: host)
    return host


def test_every_topic_has_a_value_and_every_complaint_an_advice():
    findings = diagnose()
    assert len({each.topic for each in findings}) == len(findings) == 14
    assert all(each.value for each in findings)
    assert all(bool(each.advice) == (each.level != "ok") for each in findings)
    assert all("\n" not in each.value + each.advice for each in findings)


def test_a_tvm_ffi_that_breaks_is_bad(monkeypatch):
    monkeypatch.setattr(diagnosis, "tvm_ffi_problem", lambda: "it crashes: install another")
    assert finding("tvm-ffi").level == "bad"
    assert finding("tvm-ffi").advice == "it crashes: install another"


@pytest.mark.parametrize("version", [None, "0.26.0", "1.0"])
def test_another_tvm_is_bad(monkeypatch, version):
    monkeypatch.setattr(diagnosis, "_installed", lambda distribution: version)
    assert finding("TVM") == Finding(
        "TVM", version or "not installed", "bad", 'pip install "apache-tvm==0.27.*"'
    )


def test_half_a_pool_is_a_warning(monkeypatch):
    on_host(monkeypatch, cpus=(0, 1), siblings=((0,), (1,)), quota=None)
    monkeypatch.setattr(diagnosis, "default_pool_size", lambda: 1)
    assert finding("thread pool") == Finding(
        "thread pool",
        "1 worker by default for 2 cores",
        "warn",
        "TVM's default is half of the hardware threads, or OMP_NUM_THREADS: GraphModule makes it "
        "2, other programs need TVM_NUM_THREADS=2",
    )
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    assert finding("thread pool") == Finding(
        "thread pool",
        "1 worker (TVM_NUM_THREADS)",
        "warn",
        "unset TVM_NUM_THREADS to use all 2 cores",
    )
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    assert finding("thread pool").level == "ok"


def test_a_quota_and_one_core_are_warnings(monkeypatch):
    on_host(monkeypatch, cpus=(0, 1), siblings=((0,), (1,)), quota=1.5)
    assert (finding("CPU quota").level, finding("CPU quota").value) == ("warn", "1.5 cores")
    assert (finding("cores").level, finding("cores").value) == ("warn", "1 usable")


def test_fewer_cpus_than_there_are_is_a_warning(monkeypatch):
    on_host(monkeypatch, cpus=(0,), siblings=((0,),))
    monkeypatch.setattr(diagnosis.os, "cpu_count", lambda: 8)
    assert (finding("affinity").level, finding("affinity").value) == ("warn", "1 of 8 CPUs")


def test_no_compiler_is_a_warning(monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    assert finding("C++ compiler") == Finding(
        "C++ compiler",
        "none",
        "warn",
        "building and running here works; export_library needs one: install g++",
    )


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert finding("cache").level == "warn"


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def fail():
        raise RuntimeError("LLVM is missing\nand more")

    monkeypatch.setattr(diagnosis, "host_target", fail)
    assert finding("vectors") == Finding(
        "vectors", "RuntimeError: LLVM is missing", "bad", "put right what the message says"
    )


def test_distances_are_told_where_there_are_some(monkeypatch):
    assert not [each for each in diagnose() if each.topic == "topology"]
    near = PairCosts(7e-8, 1e-7, 2.5e-11)
    topology = topology_of([0, 1, 2, 3], [0, 0, 1, 2], [0, 0, 0, 1], near)
    apart = VDevice("apart", threads=4, topology=topology)
    monkeypatch.setattr(diagnosis, "calibrated", lambda vdevice: apart)
    assert finding("topology").value == (
        "2 sockets, last-level caches: 3; a signal in a core 56.8 ns, in a cache 70 ns, "
        "in a socket 154 ns, between sockets 244 ns"
    )
