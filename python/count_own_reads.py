#!/usr/bin/env python3
"""What blocks of a GPU read that they wrote themselves, and what to keep it would save at most.

    python python/count_own_reads.py --models lstm_8x8x256,nasnet_cifar --arch sm_90

Nothing is run: plans are simulated.
"""

from __future__ import annotations

import click
from bench.graphs import operator_graphs
from bench.own_reads import OwnReads, own_reads

from tvm_rammer.backend import backend_for, resolve_target, vdevice_for
from tvm_rammer.errors import RammerError
from tvm_rammer.schedule import plan
from tvm_rammer.testing.models import get_model

USUAL = "lstm_8x8x256,mixture_of_experts,inception_v3"


@click.command()
@click.option("--models", default=USUAL, show_default=True, help="Names, with commas.")
@click.option("--arch", default="sm_90", show_default=True)
@click.option("--policy", default="estf", show_default=True)
@click.option("--quick", is_flag=True, help="Models at the reduced sizes of the tests.")
def main(models: str, arch: str, policy: str, quick: bool) -> None:
    """Count what blocks read of their own."""
    try:
        target = resolve_target({"kind": "cuda", "arch": arch})
        vdevice = vdevice_for(target)
        costs = backend_for(target).costs(vdevice)
        for name in models.split(","):
            info = get_model(name.strip())
            for graph in operator_graphs((info.tiny if quick else info.build)(), target=target):
                program = plan(graph, vdevice, policy, costs)
                click.echo(f"{info.name}: {line(own_reads(program, costs, arch))}")
    except RammerError as error:
        raise click.ClickException(str(error)) from error


def line(found: OwnReads) -> str:
    """As it is printed."""
    return (
        f"{found.own / max(1, found.reads):.1%} of {found.reads:,} reads and "
        f"{found.own_bytes / max(1.0, found.nbytes):.1%} of their bytes are of the block's own; "
        f"to keep them saves at most {found.saved / found.seconds:.1%} of "
        f"{found.seconds * 1e6:,.1f} us"
    )


if __name__ == "__main__":
    main()
