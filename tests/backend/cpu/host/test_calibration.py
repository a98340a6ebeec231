"""Costs are measured once in another process, kept, and never measured by surprise."""

import json
import os
import subprocess
from dataclasses import asdict, replace

import pytest

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host import calibrate, calibrated, host_cpu
from tvm_rammer.backend.cpu.host.calibrate import SyncCosts
from tvm_rammer.machine import VDevice, clear_cache
from tvm_rammer.machine.topology import PairCosts, topology_of
from tvm_rammer.machine.vdevice import MemoryCosts

needs_two_cores = pytest.mark.skipif(host_cpu().cores < 2, reason="one core has nothing to measure")
KEPT = MemoryCosts(1e-7, 2e-11, 3e10, 4e10, ((1 << 20, 0.0), (1 << 24, 0.75)))
FAST, SLOW = SyncCosts(1e-6, 2e-7, 5e-8, KEPT), SyncCosts(4e-6, 8e-7, 9e-8, KEPT)
HOST = VDevice("this machine", num_veus=2, cores=2, threads=2, host=True)

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def measurements(monkeypatch) -> list[int]:
    """Makes measuring cheap; holds how often it happened and for how many cores."""
    done: list[int] = []

    def measure(cores: int) -> dict[int, SyncCosts]:
        done.append(cores)
        return {2: FAST, 4: SLOW}

    monkeypatch.setattr(calibrate, "measure", measure)
    return done


@needs_two_cores
def test_what_was_measured_is_plausible(empty_cache):
    costs = calibrate.measure(2)
    assert set(costs) == {2}
    # Loose: the machine may be busy. What matters is that they are times and no nonsense.
    assert 1e-8 < costs[2].point_to_point < 1e-2
    assert 1e-8 < costs[2].barrier < 1e-2
    assert 1e-8 < costs[2].launch < 1e-2
    memory = costs[2].memory
    assert 0 <= memory.transfer < 1e-2
    assert 0 <= memory.transfer_byte < 1e-5
    assert min(memory.bandwidth, memory.core_bandwidth) > 1e7
    sizes = [size for size, _ in memory.missing]
    shares = [share for _, share in memory.missing]
    assert sizes == sorted(set(sizes))
    # None if the machine was so busy that memory seemed as fast as the cache.
    assert not shares or (shares[0], shares[-1]) == (0.0, 1.0)
    assert all(0 <= share <= 1 for share in shares)


@needs_two_cores
def test_measured_once_then_known_to_everyone(measurements):
    assert not vdevice_for().calibrated
    first = calibrated(HOST)
    assert (first.launch_seconds, first.barrier_seconds) == (FAST.launch, FAST.barrier)
    assert first.point_to_point_seconds == FAST.point_to_point
    assert first.memory == FAST.memory
    assert first.calibrated
    assert calibrated(HOST) == first
    assert measurements == [host_cpu().cores]
    assert vdevice_for(num_veus=2).calibrated
    assert calibrated(HOST, refresh=True) == first
    assert len(measurements) == 2


@needs_two_cores
@pytest.mark.parametrize(("num_veus", "costs"), [(1, FAST), (2, FAST), (3, SLOW), (8, SLOW)])
def test_the_costs_are_those_of_enough_workers(measurements, num_veus, costs):
    vdevice = VDevice("wide", num_veus=num_veus, cores=8, threads=8, host=True)
    assert calibrated(vdevice).launch_seconds == costs.launch


def test_what_is_not_this_machine_keeps_its_costs(measurements):
    foreign = VDevice("elsewhere", num_veus=8, cores=8, threads=8)
    assert calibrated(foreign) is foreign
    assert measurements == []


def times(**changed: object) -> dict[str, object]:
    return {**asdict(FAST), **changed}


@needs_two_cores
@pytest.mark.parametrize(
    ("costs", "problem"),
    [
        ([1], "it is [1]; it must be an object"),
        ({"2": {"launch": 1}}, "[\"2\"] lacks the key 'barrier'; add it"),
        ({"two": asdict(FAST)}, "are costs of 'two' workers"),
        ({"2": times(launch=-1)}, "are no costs of synchronising: "),
        ({"2": times(launch="x")}, '["2"].launch is "x"; it must be a number'),
        ({"2": times(launch=10**400)}, '["2"].launch is 1000'),
        ({"2": times(memory={**asdict(KEPT), "transfer": -1.0})}, "are no costs of memory: "),
        ({"2": times(memory={**asdict(KEPT), "bandwidth": 0.0})}, "are no costs of memory: "),
        (
            {"2": times(memory={**asdict(KEPT), "missing": [[1]]})},
            '["2"].memory.missing[0] is [1]; it must be a list of 2',
        ),
    ],
)
def test_damaged_costs_are_measured_anew(empty_cache, measurements, costs, problem):
    calibrated(HOST)
    (file,) = empty_cache.iterdir()
    good = file.read_text()
    file.write_text(json.dumps(dict.fromkeys(json.loads(good), costs)))
    with pytest.warns(UserWarning) as caught:
        assert not vdevice_for().calibrated
    text = str(caught[0].message)
    assert text.startswith(f"{file}: 1 measurement cannot be used and is ignored (of ")
    assert problem in text
    with pytest.warns(UserWarning):
        assert calibrated(HOST).calibrated
    assert file.read_text() == good
    assert len(measurements) == 2


@needs_two_cores
@pytest.mark.parametrize(
    "crowded",
    [
        SyncCosts(3e-6, 2e-6, 66e-6),
        SyncCosts(3e-6, 2e-6, 1e-7, MemoryCosts(transfer=66e-6, transfer_byte=0.0)),
        SyncCosts(3e-6, 2e-6, 1e-7, MemoryCosts(transfer=0.0, transfer_byte=66e-6 / 4096)),
    ],
)
def test_a_busy_machine_is_not_remembered(empty_cache, monkeypatch, crowded):
    monkeypatch.setattr(calibrate, "measure", lambda cores: {2: crowded})
    with pytest.warns(UserWarning) as caught:
        assert not calibrated(HOST).calibrated
    assert str(caught[0].message) == (
        "other programs keep the cores busy (a signal between two took 66 us): "
        "default synchronisation costs are used, and nothing is kept"
    )
    assert list(empty_cache.iterdir()) == []


@needs_two_cores
def test_a_measurement_that_fails_costs_a_warning(empty_cache, monkeypatch):
    def fail(*args, **options):
        raise subprocess.CalledProcessError(
            1, "measure", stderr="Traceback:\nImportError: no tvm\n"
        )

    before = os.sched_getaffinity(0)
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.warns(UserWarning) as caught:
        assert not calibrated(HOST).calibrated
    assert str(caught[0].message) == (
        "synchronisation costs could not be measured, defaults are used: ImportError: no tvm"
    )
    assert os.sched_getaffinity(0) == before
    assert list(empty_cache.iterdir()) == []


NEAR, FAR = PairCosts(5e-8, 1e-7, 2e-11), PairCosts(2e-7, 3e-7, 9e-11)
#: This machine as if its cores were in complexes of their own, and those of other machines.
APART = replace(HOST, topology=topology_of([0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 0], NEAR))


@pytest.fixture
def measured_pairs(monkeypatch) -> list[int]:
    done: list[int] = []

    def measure_pairs(vdevice: VDevice) -> dict[str, PairCosts]:
        done.append(vdevice.num_veus)
        return {"complex": NEAR, "socket": FAR}

    monkeypatch.setattr(calibrate, "measure_pairs", measure_pairs)
    return done


@needs_two_cores
def test_distances_are_measured_once_where_there_are_some(
    empty_cache, measurements, measured_pairs
):
    assert calibrated(HOST).topology is None
    assert measured_pairs == []
    first = calibrated(APART)
    assert first.topology is not None
    assert first.topology.socket == FAR
    assert (first.point_to_point_seconds, first.launch_seconds) == (5e-8, FAST.launch)
    assert (first.memory.transfer, first.memory.transfer_byte) == (1e-7, 2e-11)
    assert first.memory.bandwidth == FAST.memory.bandwidth
    assert calibrated(APART) == calibrate.with_known_costs(APART) == first
    assert measured_pairs == [2]
    assert calibrated(APART, refresh=True) == first
    assert measured_pairs == [2, 2]
    assert sorted(path.name for path in empty_cache.glob("*.json")) == [
        "calibration_pairs.json",
        "calibrations.json",
    ]
    assert {path.name for path in clear_cache()} >= {"calibration_pairs.json"}


@needs_two_cores
def test_distances_that_are_not_measured_follow_from_what_is(measurements):
    vdevice = calibrate._with_pairs({}, calibrate._nearest({2: FAST}, APART))
    assert vdevice.topology is not None
    assert vdevice.topology.socket is not None
    assert vdevice.topology.socket.point_to_point == pytest.approx(FAST.point_to_point + 84e-9)


@needs_two_cores
def test_pairs_on_a_busy_machine_are_not_remembered(empty_cache, measurements, monkeypatch):
    monkeypatch.setattr(
        calibrate, "measure_pairs", lambda vdevice: {"socket": replace(FAR, point_to_point=66e-6)}
    )
    with pytest.warns(UserWarning, match="a signal between two took 66 us"):
        found = calibrated(APART)
    assert found.topology is not None
    assert found.topology.socket != FAR
    assert [path.name for path in empty_cache.glob("*.json")] == ["calibrations.json"]


@needs_two_cores
@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ({"near": asdict(NEAR)}, "are costs of the distance 'near'"),
        ({"socket": {**asdict(NEAR), "transfer": -1.0}}, "are no costs of two vEUs: "),
        ({"socket": {"transfer": 1.0}}, "[\"socket\"] lacks the key 'point_to_point'; add it"),
    ],
)
def test_damaged_pairs_are_measured_anew(empty_cache, measurements, measured_pairs, pairs, problem):
    calibrated(APART)
    file = empty_cache / "calibration_pairs.json"
    good = file.read_text()
    file.write_text(json.dumps(dict.fromkeys(json.loads(good), pairs)))
    with pytest.warns(UserWarning) as caught:
        calibrated(APART)
    assert problem in str(caught[0].message)
    assert file.read_text() == good
    assert measured_pairs == [2, 2]


@needs_two_cores
def test_what_was_measured_of_pairs_is_plausible(monkeypatch):
    """Whether they are far or not; loose, as the machine may be busy."""
    cpus = host_cpu().in_order
    far = replace(HOST, topology=topology_of([0, 1], [0, 1], [0, 0], NEAR))
    asked = []
    run = calibrate._run_measure
    monkeypatch.setattr(
        calibrate, "_run_measure", lambda *given: asked.append(given) or run(*given)
    )
    found = calibrate.measure_pairs(far)
    assert asked == [("measure_pairs", 2, f"socket={cpus[0]},{cpus[1]}")]
    assert set(found) == {"socket"}
    assert 1e-8 < found["socket"].point_to_point < 1e-2
    assert calibrate.measure_pairs(HOST) == {}
