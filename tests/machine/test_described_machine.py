"""Machines to plan for that are not here: what their files say, and what is wrong with one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tvm_rammer.errors import InputError
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import (
    described_machine,
    described_machines,
    read_machine,
)

KNOWN = VDevice("here", num_veus=2, cores=2, threads=2, l2_bytes=1 << 20, calibrated=True)
EPYC = json.loads(described_machines()["epyc-7r13-2s"].read_text())
GRAVITON = json.loads(described_machines()["graviton3"].read_text())


@pytest.mark.parametrize(
    ("name", "cores", "threads", "complexes", "sockets"),
    [
        ("epyc-7r13-2s", 96, 192, 12, 2),
        ("xeon-8375c-2s", 64, 128, 2, 2),
        ("ryzen-5950x", 16, 32, 2, 1),
        ("graviton3", 64, 64, 1, 1),
    ],
)
def test_what_ships_with_the_package(name, cores, threads, complexes, sockets):
    vdevice = described_machine(name).applied_to(KNOWN)
    assert (vdevice.cores, vdevice.threads, vdevice.num_veus) == (cores, threads, cores)
    assert not (vdevice.host or vdevice.calibrated)
    topology = vdevice.topology
    counts = (
        (topology.count_complexes(threads), topology.count_sockets(threads))
        if topology is not None
        else (1, 1)
    )
    assert counts == (complexes, sockets)


def test_every_file_is_tested():
    assert list(described_machines()) == [
        "epyc-7r13-2s",
        "graviton3",
        "ryzen-5950x",
        "xeon-8375c-2s",
    ]


def test_numbers_are_the_described_ones():
    vdevice = described_machine("epyc-7r13-2s").applied_to(KNOWN)
    assert vdevice.name == "2 x AMD EPYC 7R13 (Zen 3), 2 x 48 cores in complexes of 8"
    assert (vdevice.l1_bytes, vdevice.l2_bytes, vdevice.l3_bytes) == (32 << 10, 512 << 10, 32 << 20)
    assert vdevice.memory.bandwidth == 204.8e9
    # Within a complex it is the machine that the defaults are of.
    assert vdevice.memory.transfer_byte == KNOWN.memory.transfer_byte
    assert vdevice.topology is not None
    assert vdevice.topology.socket is not None
    assert vdevice.topology.socket.point_to_point == pytest.approx(
        KNOWN.point_to_point_seconds + 84e-9
    )
    assert vdevice.topology.distance(0, 7) == "complex"
    assert vdevice.topology.distance(7, 8) == "socket"
    assert vdevice.topology.distance(47, 48) == "machine"
    assert vdevice.topology.distance(0, 96) == "core"


def test_what_was_measured_of_the_caches_here_is_not_said_of_others():
    swept = replace(KNOWN, memory=replace(KNOWN.memory, missing=((1, 0.0), (2, 1.0))))
    assert described_machine("graviton3").applied_to(swept).memory.missing == ()


def test_a_file_is_as_good_as_a_name(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**EPYC, "name": "mine"}))
    assert described_machine(str(path)).name == "mine"


def test_no_such_machine():
    with pytest.raises(InputError) as caught:
        described_machine("abacus")
    assert str(caught.value) == (
        "no machine 'abacus' is described, and no file of that name can be read: give one of "
        "epyc-7r13-2s, graviton3, ryzen-5950x, xeon-8375c-2s, or a file like theirs"
    )


def stated(value: object, source: str = "a book") -> dict[str, object]:
    return {"value": value, "source": source}


def latency(base: dict[str, Any], **changes: object) -> dict[str, Any]:
    found = {**base["latency"], **changes}
    return {**base, "latency": {key: value for key, value in found.items() if value is not None}}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ([], "the description is []; it must be an object"),
        ({"name": "x"}, "the description lacks the key 'sockets'; add it"),
        ({**EPYC, "sockets": 2}, "sockets is 2; it must be an object"),
        ({**EPYC, "sockets": {"value": 2}}, "sockets lacks the key 'source'; add it"),
        (
            {**EPYC, "sockets": stated(2, " ")},
            "sockets has no source; say where the number is from",
        ),
        ({**EPYC, "sockets": stated(0)}, "sockets is 0; it must be above 0"),
        ({**EPYC, "sockets": stated(1.5)}, "sockets.value is 1.5; it must be an integer"),
        (
            {**EPYC, "sockets": stated(1000)},
            "it has 96,000 hardware threads; describe at most 16,384",
        ),
        (
            {**EPYC, "sockets": stated(1)},
            "sockets is 1, but there is a latency.machine; correct one of the two",
        ),
        (
            {**EPYC, "threads_per_core": stated(1)},
            "threads_per_core is 1, but there is a latency.core; correct one of the two",
        ),
        (
            latency(EPYC, socket=None),
            "complexes_per_socket is 6, but there is no latency.socket; add it",
        ),
        (latency(EPYC, complex=None), "latency lacks the key 'complex'; add it"),
        (latency(EPYC, complex=stated(23)), "latency.complex is 23; give it in seconds"),
        (latency(EPYC, complex=stated(-1)), "latency.complex is -1.0; it must be above 0"),
        (
            latency(EPYC, socket=stated(1e-8)),
            "latency.socket 1e-08 is less than latency.complex 2.3e-08; "
            "what is farther takes no less",
        ),
        (
            {**EPYC, "l2_bytes": stated(1024)},
            "l2_bytes 1024 is less than l1_bytes 32768; a cache behind another is no smaller",
        ),
        (
            {**EPYC, "memory_bandwidth": stated(1e9)},
            "memory_bandwidth 1e+09 is less than core_memory_bandwidth 3e+10; "
            "a socket draws no less than one of its cores",
        ),
        (
            {**GRAVITON, "color": "blue"},
            "the description has the unknown key 'color'; the keys are name, sockets, "
            "complexes_per_socket, cores_per_complex, threads_per_core, l1_bytes, l2_bytes, "
            "l3_bytes, l3_bandwidth, core_memory_bandwidth, memory_bandwidth, latency",
        ),
    ],
)
def test_what_is_wrong_is_named(description, message):
    with pytest.raises(InputError) as caught:
        read_machine(json.dumps(description), "mine.json")
    assert str(caught.value) == f"mine.json: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"name": 1, "name": 2}', "the key 'name' is there twice"),
    ],
)
def test_what_is_no_json(text, message):
    with pytest.raises(InputError) as caught:
        read_machine(text, "mine.json")
    assert str(caught.value) == f"mine.json: {message}"
