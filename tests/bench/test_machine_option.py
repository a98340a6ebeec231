"""Scripts plan for machines that are not here."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest
from bench.machine_option import described_veus, machine_option
from bench.scaling import makespans
from click.testing import CliRunner
from fuzzing.random_graphs import random_graph

from tvm_rammer.errors import InputError
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import described_machine, described_machines

KNOWN = VDevice("two cores", num_veus=2, cores=2, threads=2)


@click.command()
@machine_option
def show(described):
    click.echo("here" if described is None else described.name)


def test_a_machine_by_name_by_file_or_none():
    run = CliRunner().invoke
    assert run(show, []).stdout == "here\n"
    name = described_machine("graviton3").name
    assert run(show, ["--machine", "graviton3"]).stdout == f"{name}\n"
    path = str(described_machines()["graviton3"])
    assert run(show, ["--machine", path]).stdout == f"{name}\n"
    wrong = run(show, ["--machine", "abacus"])
    assert wrong.exit_code == 2
    assert "no machine 'abacus' is described" in wrong.stderr
    assert "epyc-7r13-2s, graviton3" in " ".join(run(show, ["--help"]).stdout.split())


def test_no_more_veus_than_threads():
    with pytest.raises(InputError) as caught:
        described_veus(described_machine("graviton3"), KNOWN, 65)
    assert str(caught.value) == (
        "65 vEUs are more than the 64 hardware threads of AWS Graviton3 (Neoverse V1), 64 cores; "
        "give at most as many"
    )


def test_a_plan_for_several_complexes_takes_longer_than_for_one():
    graph = random_graph(3, "wide", 12)
    apart = described_veus(described_machine("ryzen-5950x"), KNOWN, 16)
    one = replace(apart, topology=None)
    assert makespans([graph], apart, 8) == makespans([graph], one, 8)
    assert makespans([graph], apart, 16)["sequential"] > makespans([graph], one, 16)["sequential"]
