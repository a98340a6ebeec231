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

_CHECK_TEXT = """
define ptr @rammer_tensor(ptr %args, i32 %number) alwaysinline {
  %any = getelementptr [16 x i8], ptr %args, i32 %number
  %kind = load i32, ptr %any, align 8
  %value_at = getelementptr i8, ptr %any, i32 8
  %value = load ptr, ptr %value_at, align 8
  %behind_head = getelementptr i8, ptr %value, i32 24
  %is_object = icmp eq i32 %kind, 70
  %is_pointer = icmp eq i32 %kind, 7
  %given = select i1 %is_pointer, ptr %value, ptr null
  %tensor = select i1 %is_object, ptr %behind_head, ptr %given
  ret ptr %tensor
}

define ptr @rammer_data(ptr %args, i32 %number) alwaysinline {
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %number)
  %memory = load ptr, ptr %tensor, align 8
  %offset_at = getelementptr i8, ptr %tensor, i32 40
  %offset = load i64, ptr %offset_at, align 8
  %data = getelementptr i8, ptr %memory, i64 %offset
  ret ptr %data
}

define i64 @rammer_extent(ptr %args, i32 %number) alwaysinline {
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %number)
  %shape_at = getelementptr i8, ptr %tensor, i32 24
  %shape = load ptr, ptr %shape_at, align 8
  %extent = load i64, ptr %shape, align 8
  ret i64 %extent
}

define i32 @rammer_check_arguments(
    ptr %args, i64 %given, i64 %count, ptr %name, ptr %specs, ptr %texts) alwaysinline {
entry:
  %buffer = alloca [1024 x i8], align 1
  %parts = alloca ptr, align 8
  store ptr %buffer, ptr %parts, align 8
  %complete = icmp eq i64 %given, %count
  br i1 %complete, label %argument, label %another_count
argument:
  %number = phi i64 [ 0, %entry ], [ %next, %fits ]
  %position = trunc i64 %number to i32
  %spec_at = getelementptr ptr, ptr %specs, i64 %number
  %spec = load ptr, ptr %spec_at, align 8
  %tensor = call ptr @rammer_tensor(ptr %args, i32 %position)
  %no_tensor = icmp eq ptr %tensor, null
  br i1 %no_tensor, label %wrong, label %dtype
dtype:
  %dtype_at = getelementptr i8, ptr %tensor, i32 20
  %dtype_given = load i32, ptr %dtype_at, align 4
  %dtype_wide = zext i32 %dtype_given to i64
  %dtype_wanted = load i64, ptr %spec, align 8
  %same_dtype = icmp eq i64 %dtype_wide, %dtype_wanted
  br i1 %same_dtype, label %device, label %wrong
device:
  %device_at = getelementptr i8, ptr %tensor, i32 8
  %device_type = load i32, ptr %device_at, align 4
  %on_cpu = icmp eq i32 %device_type, 1
  br i1 %on_cpu, label %axes, label %wrong
axes:
  %axes_at = getelementptr i8, ptr %tensor, i32 16
  %axes_given = load i32, ptr %axes_at, align 4
  %num_axes = zext i32 %axes_given to i64
  %axes_wanted_at = getelementptr i64, ptr %spec, i32 1
  %axes_wanted = load i64, ptr %axes_wanted_at, align 8
  %same_axes = icmp eq i64 %num_axes, %axes_wanted
  br i1 %same_axes, label %sizes, label %wrong
sizes:
  %extents = getelementptr i64, ptr %spec, i32 2
  %shape_at = getelementptr i8, ptr %tensor, i32 24
  %shape = load ptr, ptr %shape_at, align 8
  %strides_at = getelementptr i8, ptr %tensor, i32 32
  %strides = load ptr, ptr %strides_at, align 8
  %no_strides = icmp eq ptr %strides, null
  br label %next_axis
next_axis:
  %left = phi i64 [ %num_axes, %sizes ], [ %axis, %dense ]
  %elements = phi i64 [ 1, %sizes ], [ %more, %dense ]
  %gap = phi i64 [ -1, %sizes ], [ %found_gap, %dense ]
  %no_more = icmp eq i64 %left, 0
  br i1 %no_more, label %memory, label %extent
extent:
  %axis = sub i64 %left, 1
  %extent_at = getelementptr i64, ptr %shape, i64 %axis
  %extent_given = load i64, ptr %extent_at, align 8
  %extent_wanted_at = getelementptr i64, ptr %extents, i64 %axis
  %extent_wanted = load i64, ptr %extent_wanted_at, align 8
  %any = icmp slt i64 %extent_wanted, 0
  %same_extent = icmp eq i64 %extent_given, %extent_wanted
  %extent_fits = or i1 %any, %same_extent
  br i1 %extent_fits, label %stride, label %wrong
stride:
  %more = mul i64 %elements, %extent_given
  %single = icmp eq i64 %extent_given, 1
  %no_stride = or i1 %single, %no_strides
  br i1 %no_stride, label %dense, label %stride_given
stride_given:
  %stride_at = getelementptr i64, ptr %strides, i64 %axis
  %stride_found = load i64, ptr %stride_at, align 8
  %compact = icmp eq i64 %stride_found, %elements
  %gap_here = select i1 %compact, i64 %gap, i64 %axis
  br label %dense
dense:
  %found_gap = phi i64 [ %gap, %stride ], [ %gap_here, %stride_given ]
  br label %next_axis
memory:
  %empty = icmp eq i64 %elements, 0
  br i1 %empty, label %fits, label %gaps
gaps:
  %gapless = icmp slt i64 %gap, 0
  br i1 %gapless, label %data, label %apart
apart:
  %gap_at = getelementptr i64, ptr %strides, i64 %gap
  %gap_stride = load i64, ptr %gap_at, align 8
  br label %wrong
data:
  %data_at = load ptr, ptr %tensor, align 8
  %no_data = icmp eq ptr %data_at, null
  br i1 %no_data, label %wrong, label %fits
fits:
  %next = add i64 %number, 1
  %all = icmp eq i64 %next, %count
  br i1 %all, label %done, label %argument
done:
  ret i32 0
wrong:
  %reason = phi i64 [ 0, %argument ], [ 1, %dtype ], [ 2, %device ], [ 3, %axes ], [ 4, %extent ],
      [ 5, %apart ], [ 6, %data ]
  %found = phi i64 [ 0, %argument ], [ 0, %dtype ], [ 0, %device ], [ %num_axes, %axes ],
      [ %extent_given, %extent ], [ %gap_stride, %apart ], [ 0, %data ]
  %place = phi i64 [ 0, %argument ], [ 0, %dtype ], [ 0, %device ], [ 0, %axes ],
      [ %axis, %extent ], [ %gap, %apart ], [ 0, %data ]
  %text_at = getelementptr ptr, ptr %texts, i64 %number
  %text = load ptr, ptr %text_at, align 8
  %message_at = getelementptr ptr, ptr @rammer_argument_messages, i64 %reason
  %message = load ptr, ptr %message_at, align 8
  %written = call i32 (ptr, i64, ptr, ...) @snprintf(
      ptr %buffer, i64 1024, ptr %message,
      ptr %name, i64 %number, ptr %text, i64 %found, i64 %place)
  %is_type = icmp ult i64 %reason, 2
  %kind = select i1 %is_type, ptr @rammer_argument_type, ptr @rammer_argument_value
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr %kind, ptr %parts, i32 1)
  ret i32 -1
another_count:
  %counted = call i32 (ptr, i64, ptr, ...) @snprintf(
      ptr %buffer, i64 1024, ptr @rammer_argument_count, ptr %name, i64 %count, i64 %given)
  call void @TVMFFIErrorSetRaisedFromCStrParts(ptr @rammer_argument_type, ptr %parts, i32 1)
  ret i32 -1
}
"""

_REGION_TEXT = """
define i32 @{check}(ptr %self, ptr %own, i32 %num, ptr %result) {{
  %args_at = getelementptr i8, ptr %own, i32 8
  %args = load ptr, ptr %args_at, align 8
  %given_at = getelementptr i8, ptr %own, i32 24
  %given = load i64, ptr %given_at, align 8
  %status = call i32 @rammer_check_arguments(ptr %args, i64 %given, i64 {count},
      ptr @{check}_name, ptr @{check}_specs, ptr @{check}_texts)
  ret i32 %status
}}
"""


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
    return "\n".join(constants) + _REGION_TEXT.format(check=check, count=len(specs))


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
    return "\n".join(constants) + _CHECK_TEXT


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
