"""How a module says which of its functions are regions, and what is in none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar

#: Attribute of a region function.
REGION = "tvm_rammer.region"
#: Attribute of a module: what was left out and why, as JSON.
LEFT_OUT = "tvm_rammer.left_out"


@dataclass(frozen=True)
class LeftOut:
    """An operator that stays ordinary Relax."""

    operator: str
    reason: str


def is_region(func: Any) -> bool:
    """Whether a function is a region that a partition made."""
    return isinstance(func, relax.Function) and bool(func.attrs and REGION in func.attrs)


def read_left_out(mod: tvm.IRModule) -> list[LeftOut]:
    """What a partition left out, and why."""
    text = mod.attrs.get(LEFT_OUT) if mod.attrs else None
    return [LeftOut(**item) for item in json.loads(str(text))] if text else []


def regions_of(mod: tvm.IRModule) -> list[GlobalVar]:
    """The region functions of a module."""
    return [symbol for symbol, func in mod.functions_items() if is_region(func)]
