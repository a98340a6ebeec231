"""What a library says about itself: the record, its JSON, and the functions that hold it.

A library has a few functions besides the model's own. Everything that is written into them, or read
out of them, is here, with the version of it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tvm_rammer.errors import InputError
from tvm_rammer.options import Options
from tvm_rammer.region.direct_call import DirectCall
from tvm_rammer.region.marks import LeftOut
from tvm_rammer.schedule import CostModel, Decision, Explanation
from tvm_rammer.typed_json import read_as
from tvm_rammer.units import dimensions, listed

#: Increased whenever a library can no longer be read by older versions of this package.
FORMAT_VERSION = 13
#: Returns the description, see :func:`packed`.
DESCRIBE = "tvm_rammer_describe"
#: With the name of a function: returns (constants, table) of the region that it calls directly.
STATE = "tvm_rammer_state_"
#: Returns what the states that are not zero are before the first run, in their order.
INITIAL_STATE = "tvm_rammer_initial_state"
#: Returns the number of vEUs that the library was planned for.
NUM_VEUS = "tvm_rammer_num_veus"

#: How a description begins, compressed as it is, and how much of it says which format it has.
_COMPRESSED = re.escape(zlib.compress(b"")[:2])
_HEAD_BYTES = 512

#: What a model's interface may hold besides tensors: the word that stands for the dtype.
_NO_TENSORS = {"tuple": "a tuple", "shape": "a shape", "prim": "a number", "any": "an object"}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model's interface.

    Attributes
    ----------
    name : str
    shape : tuple of int or str, optional
        Text is the name, or the formula, of a size that each run decides; ``None`` where the
        number of axes is not known, or for what is no tensor.
    dtype : str
    """

    name: str
    shape: Shape | None
    dtype: str

    def static_shape(self) -> tuple[int, ...]:
        """The shape.

        Raises
        ------
        InputError
            If there is none to make a tensor of.
        """
        if self.shape is None:
            what = "has a dynamic shape"
            if self.dtype in _NO_TENSORS:
                what = f"is {_NO_TENSORS[self.dtype]}, not a tensor"
            raise InputError(f"{self.name!r} {what}; run the model through lib.executable")
        if not is_static(self.shape):
            raise InputError(
                f"{self.name!r} is of the shape {self.shape}, in which each run has sizes of its "
                "own; give a value of such a shape"
            )
        return tuple(size for size in self.shape if isinstance(size, int))

    def with_sizes(self, sizes: Mapping[str, int]) -> TensorInfo:
        """The tensor of a run whose sizes are known by name."""
        shape = self.shape and tuple(sizes.get(str(size), size) for size in self.shape)
        return replace(self, shape=shape)


#: Sizes, or what those are called that each run decides.
Shape = tuple[int | str, ...]


def is_static(shape: Shape) -> bool:
    """Whether a shape is the same in every run."""
    return all(isinstance(size, int) for size in shape)


def sizes_of(
    patterns: Sequence[Shape | None], shapes: Sequence[Shape | None]
) -> dict[str, int] | None:
    """What sizes are that patterns have names for, in shapes that fit them; else ``None``.

    No size that has a name is 0.
    """
    found: dict[str, int] = {}
    for pattern, shape in zip(patterns, shapes, strict=True):
        if pattern is None or shape is None:
            return None
        if len(pattern) != len(shape) or not is_static(shape):
            return None
        for own, size in zip(pattern, shape, strict=True):
            if (found.setdefault(own, int(size)) if isinstance(own, str) else own) != size:
                return None
            if size == 0 and own != 0:
                return None
    return found


@dataclass(frozen=True)
class StateInfo:
    """A tensor that every run leaves for the next one, whichever function it is of.

    Attributes
    ----------
    tensor : TensorInfo
    zero : bool
        Whether the first run finds zeros; else :data:`INITIAL_STATE` has what it finds.
    in_place : bool
        Whether the kernel that the function calls directly may be given one tensor for what a run
        finds and for what it leaves.
    """

    tensor: TensorInfo
    zero: bool
    in_place: bool = False


@dataclass(frozen=True)
class Interface:
    """What a function of the library takes and returns: the model, for inputs of some shapes.

    Attributes
    ----------
    function : str
        It takes the inputs, then the states, and returns the outputs, then the states.
    inputs, outputs : tuple of TensorInfo
    states : tuple of StateInfo
        Of all functions the same.
    direct : DirectCall, optional
        How it calls its only kernel, if that is all it does.
    """

    function: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[StateInfo, ...]
    direct: DirectCall | None

    @property
    def shapes(self) -> tuple[Shape | None, ...]:
        """The shapes of the inputs."""
        return tuple(info.shape for info in self.inputs)


def shapes_text(interface: Interface) -> str:
    """What a function takes, for people, e.g. ``ids 1x16, mask 1x16``."""
    return listed(f"{info.name} {dimensions(info.shape)}" for info in interface.inputs)


@dataclass(frozen=True)
class RegionPlan:
    """Why a region has its plan: None where the user chose the policy; and what limits it."""

    region: str
    decision: Decision | None
    explanation: Explanation


@dataclass(frozen=True)
class LibraryContent:
    """What a library says; the plans themselves are read when somebody asks for them.

    The format comes first: :func:`stated_format` looks for it there.
    """

    format: int
    tvm: str
    target: str
    options: Options
    num_veus: int
    merged_rows: int
    vdevice: str
    backend: str
    costs: CostModel
    interfaces: tuple[Interface, ...]
    programs: tuple[Any, ...]
    plans: tuple[RegionPlan, ...]
    arenas: dict[str, int]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> LibraryContent:
        """What :meth:`plain` made; other keys are passed over.

        Raises
        ------
        FieldError
            With the path to what is wrong.
        """
        known = [field.name for field in fields(cls)]
        said: LibraryContent = read_as(cls, {k: v for k, v in content.items() if k in known})
        return said

    def plain(self) -> dict[str, Any]:
        """The same as JSON has it."""
        # The plans are plain already, and large.
        others = replace(self, programs=())
        content: dict[str, Any] = json.loads(json.dumps(others, default=_entries))
        return {**content, "programs": list(self.programs)}


def _entries(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def packed(content: Mapping[str, Any]) -> np.ndarray:
    """Zlib-compressed JSON, uint8."""
    return np.frombuffer(zlib.compress(json.dumps(content).encode()), np.uint8)


def unpacked(content: np.ndarray) -> dict[str, Any]:
    """What :func:`packed` was given."""
    found: dict[str, Any] = json.loads(zlib.decompress(content.tobytes()))
    return found


def other_format(stated: int | None) -> str | None:
    """What to say of a library's format; nothing if it is this version's, or unknown."""
    if stated in (None, FORMAT_VERSION):
        return None
    return f"library format {stated}, this version reads {FORMAT_VERSION}"


def stated_format(content: bytes) -> int | None:
    """The format that the file of a library states, found without running any of it."""
    for found in re.finditer(_COMPRESSED, content):
        head = content[found.start() : found.start() + _HEAD_BYTES]
        try:
            begin = zlib.decompressobj().decompress(head, _HEAD_BYTES)
        except zlib.error:
            continue
        if stated := re.match(rb'\{"format": ([0-9]+),', begin):
            return int(stated[1])
    return None
