"""The arguments of a kernel as LLVM IR text: checked in one loop, however many there are.

TVM writes the checks of a packed function out for every tensor, and LLVM takes minutes for a kernel
of hundreds. Here a region has a table of what it expects, and all regions share the loop.

The offsets are those of ``TVMFFIAny`` (16 bytes: type index, value at 8), of ``DLTensor`` (data,
device type at 8, number of axes at 16, dtype at 20, shape at 24, strides at 32, byte offset at 40)
and of a tensor object, whose ``DLTensor`` follows a head of 24 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm_ffi

from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.backend.signature import ANY, TensorSpec

_MUST = "%s: argument %lld must be %s; "
# The first two are TypeErrors, the others ValueErrors.
_WRONG = (
    "it is no tensor",
    "its dtype is another one",
    "it is on another device",
    "its number of axes is %lld",
    "its extent is %lld on axis %lld",
    "its stride is %lld on axis %lld",
    "it has no data",
)


def check_symbol(region: str) -> str:
    """The packed function ``(args, num_args)`` that raises an error if they do not fit."""
    return f"{region}_check_arguments"


def check_function(region: str, specs: Sequence[TensorSpec]) -> str:
    """The text of a region's check of its arguments, which follow ``specs``."""
    check = check_symbol(region)
    distinct = {spec: number for number, spec in enumerate(dict.fromkeys(specs))}
    constants = [_string(f"{check}_name", region)]
    for spec, number in distinct.items():
        constants.append(_string(f"{check}_text{number}", _described(spec)))
        constants.append(_array(f"{check}_spec{number}", "i64", map(str, _words(spec))))
    for kind in ("spec", "text"):
        each = [f"@{check}_{kind}{distinct[spec]}" for spec in specs]
        constants.append(_array(f"{check}_{kind}s", "ptr", each))
    return "\n".join([*constants, llvm_ir("check_region", check=check, count=len(specs))])


def argument_functions() -> str:
    """``rammer_data``, ``rammer_extent`` and what the regions' checks call."""
    messages = [f"rammer_argument_message{number}" for number in range(len(_WRONG))]
    constants = [
        *(_string(name, _MUST + text) for name, text in zip(messages, _WRONG, strict=True)),
        _array("rammer_argument_messages", "ptr", [f"@{name}" for name in messages]),
        _string("rammer_argument_count", "%s: it takes %lld arguments, not %lld"),
        _string("rammer_argument_type", "TypeError"),
        _string("rammer_argument_value", "ValueError"),
    ]
    return "\n".join([*constants, llvm_ir("check_arguments")])


def _words(spec: TensorSpec) -> tuple[int, ...]:
    """What the loop compares a tensor with: dtype, number of axes, extents."""
    dtype = tvm_ffi.dtype(spec.dtype)
    code = dtype.type_code | dtype.bits << 8 | dtype.lanes << 16
    return (code, len(spec.shape), *spec.shape)


def _described(spec: TensorSpec) -> str:
    shape = ", ".join("any" if extent == ANY else str(extent) for extent in spec.shape)
    return f"a contiguous tensor of {spec.dtype} [{shape}] on the CPU"


def _string(name: str, text: str) -> str:
    return f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"'


def _array(name: str, element: str, items: Iterable[str]) -> str:
    values = [f"{element} {item}" for item in items]
    return f"@{name} = private constant [{len(values)} x {element}] [{', '.join(values)}]"
