"""Marks the calls of a region whose result may lie in the memory of one of the region's inputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvm import tirx

from tvm_rammer.kernel.replacement import REPLACED, replaced_parameter
from tvm_rammer.region.region_calls import RegionCalls, TensorCall


def with_marked_replacements(region: RegionCalls) -> RegionCalls:
    """The same calls; PrimFuncs that replace a part of what no other call reads say so."""
    buffers = region.buffers
    uses = Counter(p for call in region.calls for p in call.operands if isinstance(p, int))
    uses.update(buffer.index for buffer in buffers if buffer.space == "part")
    made: dict[tirx.PrimFunc, tirx.PrimFunc] = {}

    def marked(call: TensorCall) -> TensorCall:
        if [buffers[result].space for result in call.results] != ["output"]:
            return call
        replaced = replaced_parameter(call.func)
        source = None if replaced is None else call.operands[replaced]
        if not isinstance(source, int) or buffers[source].space != "input" or uses[source] != 1:
            return call
        # Calls of one PrimFunc stay calls of one.
        if call.func not in made:
            made[call.func] = call.func.with_attr(REPLACED, replaced)
        return replace(call, func=made[call.func])

    return replace(region, calls=tuple(map(marked, region.calls)))
