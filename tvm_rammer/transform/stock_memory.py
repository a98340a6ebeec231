"""What TVM's own memory planner would need for a region: the yardstick for the arena."""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax

from tvm_rammer.relax_util import operator_name


def stock_plan_bytes(func: relax.Function, mod: tvm.IRModule) -> int:
    """Bytes that StaticPlanBlockMemory allocates for the intermediate results of a region.

    Parameters
    ----------
    func : relax.Function
        A region function.
    mod : IRModule
        Where its PrimFuncs are.
    """
    alone = {symbol: f for symbol, f in mod.functions_items() if not isinstance(f, relax.Function)}
    alone[tvm.ir.GlobalVar("main")] = func.with_attr("global_symbol", "main")
    passes = [
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
    ]
    planned = tvm.transform.Sequential(passes)(tvm.IRModule(alone))["main"]
    sizes: list[int] = []

    def visit(expression: Any) -> None:
        if operator_name(expression) == "relax.memory.alloc_storage":
            sizes.append(prod(int(extent) for extent in expression.args[0].values))

    relax.analysis.post_order_visit(planned, visit)
    return sum(sizes)
