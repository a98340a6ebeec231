"""A function of a library with the tensors that it reads and writes.

A function that is one region calls that region's kernel, all others run in the VM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from tvm_rammer.backend.protocol import Binding
from tvm_rammer.errors import InputError
from tvm_rammer.region.library_content import STATE, Interface, TensorInfo

#: What TVM's VM says where a size is another one than the model's.
_SIZES_DIFFER = re.compile(
    r"\((-?\d+) vs\. (-?\d+)\).*match_cast error,\s*shape\[(\d+)\]", re.DOTALL
)


class BoundFunction:
    """A function of a library; it is run by one thread at a time.

    Parameters
    ----------
    interface : Interface
    vm : relax.VirtualMachine
    binding : Binding
        Of the library.
    inputs : sequence of tvm.runtime.Tensor
        Which it reads in every run, until :meth:`read_inputs` gives others.
    arena_bytes : int
        Of the kernel, if it calls one directly.
    device : tvm.runtime.Device

    Attributes
    ----------
    outputs : list of tvm.runtime.Tensor
        Of the last run; of a kernel they are always the same.
    """

    def __init__(
        self,
        interface: Interface,
        vm: Any,
        binding: Binding,
        inputs: Sequence[Any],
        arena_bytes: int,
        device: Any,
    ) -> None:
        self.interface = interface
        self.outputs: list[Any] = []
        self._vm, self._device = vm, device
        self._inputs = list(inputs)
        self._states: list[Any] = []
        self.kernel: Any = None
        self.arguments: list[Any] = []
        #: Where in them the outputs begin, and which are the new states.
        self._first_output = 0
        self._state_places: list[int] = []
        if interface.direct is not None:
            self._bind_kernel(binding, arena_bytes)

    def read_inputs(self, inputs: Sequence[Any]) -> None:
        """Let a function that has no kernel of its own read other tensors."""
        self._inputs = list(inputs)

    def run(self, states: list[Any]) -> list[Any]:
        """Run once; what it leaves in the place of the states.

        They stay as they are, but for those that are changed in place.
        """
        if self.kernel is not None:
            if states is not self._states:
                self._read_states(states)
            self.kernel(*self.arguments)
            return [self.arguments[place] for place in self._state_places]
        results, count = _flat(self._run_in_vm(states)), len(self.interface.outputs)
        self.outputs = results[:count]
        return results[count:]

    def take_over(self, states: list[Any], left: list[Any]) -> list[Any]:
        """The states of the next run, after one that found ``states``, where that one writes."""
        direct = self.interface.direct
        if direct is None:
            # It may be an input's own tensor or a constant's, or the same for two states.
            return [copied(tensor, self._device) for tensor in left]
        kept = list(left)
        for number, (place, tensor) in enumerate(zip(self._state_places, states, strict=True)):
            if direct.outputs.count(place - self._first_output) > 1:
                kept[number] = tensor.copyfrom(left[number])
            else:
                self.arguments[place] = tensor
        self._read_states(kept)
        return kept

    def _read_states(self, states: list[Any]) -> None:
        """Let the kernel find these; what it leaves goes to tensors of its own, or is in place."""
        direct = self.interface.direct
        assert direct is not None
        first = len(self._inputs)
        for position, number in enumerate(direct.inputs):
            if number >= first:
                self.arguments[position] = states[number - first]
        for place, info, state in zip(
            self._state_places, self.interface.states, states, strict=True
        ):
            if info.in_place:
                self.arguments[place] = state
        self._states = states

    def _run_in_vm(self, states: Sequence[Any]) -> Any:
        """Run the VM; sizes that it checks against the model may follow from values of inputs."""
        try:
            return self._vm[self.interface.function](*self._inputs, *states)
        except RuntimeError as error:
            if (sizes := _SIZES_DIFFER.search(str(error))) is None:
                raise
            found, expected, axis = sizes.groups()
            if "ty=R.Shape([0])" in str(error):
                raise InputError(
                    "the model does not take these inputs: a check of their sizes or values, which "
                    f"asks for a range, a multiple or equal sizes, is off by {found}; give inputs "
                    "that it was made for"
                ) from error
            raise InputError(
                f"the values of the inputs lead to a tensor whose dimension {axis} is {found}, "
                f"and the model says {expected}: give values from which sizes follow that fit"
            ) from error

    def _bind_kernel(self, binding: Binding, arena_bytes: int) -> None:
        """Prepare the call of the region that the function consists of."""
        interface, direct = self.interface, self.interface.direct
        assert direct is not None
        self.kernel = binding.kernel(direct.region)
        constants, table = self._vm[STATE + interface.function]()
        results: list[Any] = [None] * (1 + max(direct.outputs, default=-1))
        made = [zeros(info, self._device) for info in interface.outputs]
        made += [
            None if state.in_place else zeros(state.tensor, self._device)
            for state in interface.states
        ]
        # Where several are one result of the kernel, it writes the first of them.
        for place, tensor in reversed(list(zip(direct.outputs, made, strict=True))):
            results[place] = tensor
        self._first_output = len(direct.inputs) + len((constants, table))
        count = len(interface.outputs)
        self._state_places = [self._first_output + place for place in direct.outputs[count:]]
        self.outputs = [results[place] for place in direct.outputs[:count]]
        arena = tvm.runtime.empty((arena_bytes,), "uint8", self._device)
        # States come with the first run.
        inputs = [
            self._inputs[number] if number < len(self._inputs) else None for number in direct.inputs
        ]
        self.arguments = [*inputs, constants, table, *results, arena]


def zeros(info: TensorInfo, device: Any) -> Any:
    """A tensor of a model's interface; an InputError where it has no static shape."""
    return tvm.runtime.tensor(np.zeros(info.static_shape(), info.dtype), device)


def copied(tensor: Any, device: Any) -> Any:
    """Another tensor with the same elements."""
    return tvm.runtime.empty(tensor.shape, tensor.dtype, device).copyfrom(tensor)


def _flat(result: Any) -> list[Any]:
    """The tensors of a (nested) result in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [tensor for part in result for tensor in _flat(part)]
