"""A region that is planned: everything that its call in Relax is made of."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.backend.protocol import EncodedPlan
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.rprogram import Buffer, OperatorGraph, RProgram
from tvm_rammer.schedule.decisions import Decision


@dataclass(frozen=True)
class Region:
    """A region that is planned: everything that its call in Relax is made of.

    ``decision`` says why it has this plan, unless the user asked for the policy.
    """

    graph: RegionGraph
    program: RProgram
    signature: RegionSignature
    code: EncodedPlan
    decision: Decision | None = None


def signature_of(graph: OperatorGraph, num_waves: int = 0) -> RegionSignature:
    """What the kernel of a region is called with."""
    inputs, outputs = (_tensors(graph.buffers, space) for space in ("input", "output"))
    return RegionSignature(
        graph.name, tuple(map(_spec, inputs)), tuple(map(_spec, outputs)), num_waves
    )


def _tensors(buffers: tuple[Buffer, ...], space: str) -> list[Buffer]:
    return sorted((b for b in buffers if b.space == space), key=lambda b: b.index)


def _spec(buffer: Buffer) -> TensorSpec:
    return TensorSpec(buffer.shape, buffer.dtype)
