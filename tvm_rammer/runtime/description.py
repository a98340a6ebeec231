"""What a compiled library says about itself."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm

from tvm_rammer.errors import InputError, LibraryError
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.serialize import from_json
from tvm_rammer.schedule import Decision, Explanation
from tvm_rammer.transform.attach_description import DESCRIBE, FORMAT_VERSION
from tvm_rammer.transform.direct_call import DirectCall
from tvm_rammer.transform.partition_regions import LeftOut

#: What a model's interface may hold besides tensors: the word that stands for the dtype.
_NO_TENSORS = {"tuple": "a tuple", "shape": "a shape", "prim": "a number", "any": "an object"}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model's interface; ``shape`` is ``None`` where it is dynamic."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str

    def static_shape(self) -> tuple[int, ...]:
        """The shape.

        Raises
        ------
        InputError
            If there is none to make a tensor of.
        """
        if self.shape is not None:
            return self.shape
        what = "has a dynamic shape"
        if self.dtype in _NO_TENSORS:
            what = f"is {_NO_TENSORS[self.dtype]}, not a tensor"
        raise InputError(f"{self.name!r} {what}; run the model through lib.executable")


@dataclass(frozen=True)
class LibraryDescription:
    """The description that a library carries; see the fields of its JSON text."""

    content: Mapping[str, Any]

    @property
    def num_veus(self) -> int:
        """vEUs that the library was planned for."""
        return int(self.content["num_veus"])

    @property
    def target(self) -> str:
        """The target that it was compiled for."""
        return str(self.content["target"])

    @property
    def vdevice(self) -> str:
        """The name of the device that it was planned for."""
        return str(self.content["vdevice"])

    @property
    def policy(self) -> str:
        """The policy that was asked for: ``"auto"`` where nothing was."""
        return str(self.content["options"]["policy"])

    @property
    def form(self) -> str:
        """The form of its kernels."""
        return str(self.content["options"]["form"])

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The model's inputs, in the order of ``main``'s parameters."""
        return tuple(map(_tensor, self.content["inputs"]))

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The model's outputs."""
        return tuple(map(_tensor, self.content["outputs"]))

    @cached_property
    def direct(self) -> DirectCall | None:
        """How ``main`` calls its only kernel, if that is all it does."""
        found = self.content["direct"]
        if found is None:
            return None
        return DirectCall(found["region"], tuple(found["inputs"]), tuple(found["outputs"]))

    @cached_property
    def programs(self) -> dict[str, RProgram]:
        """The rProgram of every region by its name, proved safe again."""
        found = [from_json(json.dumps(item)) for item in self.content["programs"]]
        return {program.name: program for program in found}

    @cached_property
    def explanations(self) -> dict[str, Explanation]:
        """What limits the plan of every region."""
        return {
            item["region"]: Explanation(**item["explanation"]) for item in self.content["plans"]
        }

    @cached_property
    def decisions(self) -> dict[str, Decision]:
        """Why every region has its plan; a region whose policy the user chose is missing."""
        return {
            item["region"]: Decision.from_dict(item["decision"])
            for item in self.content["plans"]
            if item["decision"] is not None
        }

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Operators that are in no plan, and why."""
        return tuple(LeftOut(**item) for item in self.content["left_out"])

    def arena_bytes(self, region: str) -> int:
        """Bytes of the arena tensor that a region's kernel takes."""
        return int(self.content["arenas"][region])


def _tensor(item: Mapping[str, Any]) -> TensorInfo:
    shape = None if item["shape"] is None else tuple(item["shape"])
    return TensorInfo(item["name"], shape, item["dtype"])


def read_description(vm: Any, where: str) -> LibraryDescription:
    """Read the description out of a library.

    Parameters
    ----------
    vm : relax.VirtualMachine
        With the library loaded.
    where : str
        The library, for messages.

    Raises
    ------
    LibraryError
        When there is none, or it is of another version.
    """
    try:
        packed = vm[DESCRIBE]()
    except (AttributeError, ValueError) as error:
        raise LibraryError(
            f"{where}: not a library of tvm_rammer (no {DESCRIBE}); compile the model with "
            "tvm_rammer.build or `tvm-rammer compile`"
        ) from error
    content = json.loads(zlib.decompress(packed.numpy().tobytes()))
    if content["format"] != FORMAT_VERSION:
        raise LibraryError(
            f"{where}: library format {content['format']}, this version reads {FORMAT_VERSION}; "
            "compile the model again"
        )
    if content["tvm"].split("+")[0] != tvm.__version__.split("+")[0]:
        raise LibraryError(
            f"{where}: compiled with TVM {content['tvm']}, this is TVM {tvm.__version__}; "
            "compile the model again"
        )
    return LibraryDescription(content)
