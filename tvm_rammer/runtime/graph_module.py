"""GraphModule: runs a compiled model, with the graph executor's methods.

What a model keeps between runs, such as a decoder's keys and values, is of the instance: the kernel
takes it as inputs and writes its new values as outputs, and the two change places after a run.
Where only a part of a tensor is replaced, both are one tensor, and the rest is never copied.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvm_rammer.errors import InputError, LibraryError
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.region.library_content import INITIAL_STATE, STATE, TensorInfo
from tvm_rammer.runtime.description import LibraryDescription
from tvm_rammer.runtime.profile import Profile, profile_kernel
from tvm_rammer.units import listed

#: What TVM's VM says where a size is another one than the model's.
_SIZES_DIFFER = re.compile(
    r"\((-?\d+) vs\. (-?\d+)\).*match_cast error,\s*shape\[(\d+)\]", re.DOTALL
)


@dataclass(frozen=True)
class BenchmarkResult:
    """Run times in seconds: one entry of ``results`` per repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.results)

    @property
    def median(self) -> float:
        return median(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        return stdev(self.results) if len(self.results) > 1 else 0.0

    def __str__(self) -> str:
        names = ("mean", "median", "min", "max", "std")
        return "  ".join(f"{name} {getattr(self, name) * 1e3:.4f} ms" for name in names)


class GraphModule:
    """One instance of a compiled model: its inputs, its outputs, its state and its arena.

    Instances of one library share its code and its constants and nothing else, so they may run in
    different threads at the same time; a single instance may be used by one thread at a time.

    Parameters
    ----------
    module : tvm.runtime.Module
        The loaded library.
    description : LibraryDescription
    device : tvm.runtime.Device
        Of the kind that the library is for.
    library : object, optional
        Kept as long as the instance: what is in use is loaded once.
    """

    def __init__(
        self,
        module: tvm.runtime.Module,
        description: LibraryDescription,
        device: Any,
        library: Any = None,
    ) -> None:
        self._library = library
        self._description = description
        self._device = device
        self._binding = description.backend.bind(module, description.num_veus)
        self._prepare_thread, self._elsewhere = self._binding.prepare, self._binding.elsewhere
        self._vm = relax.VirtualMachine(module, device)
        self._names = [info.name for info in description.inputs]
        self._inputs = [self._empty(info) for info in description.inputs]
        self._states = [self._empty(state.tensor) for state in description.states]
        self.reset_state()
        self._outputs: list[Any] = []
        self._kernel: Any = None
        self._arguments: list[Any] = []
        #: Where in them the outputs begin, and which are the new states.
        self._first_output = 0
        self._state_places: list[int] = []
        if description.direct is not None:
            self._bind_kernel()

    def __reduce__(self) -> NoReturn:
        raise LibraryError(
            "a GraphModule cannot be pickled or copied; make another by lib.create(), and in "
            "another process load what lib.export_library(path) wrote"
        )

    @property
    def num_veus(self) -> int:
        """vEUs that the model was planned for."""
        return self._description.num_veus

    @property
    def num_workers(self) -> int:
        """Workers that a run from the calling thread has; with fewer than vEUs it still runs."""
        return self._prepare_thread() or self._elsewhere(self._prepare_thread)

    def set_input(self, key: int | str | None = None, value: Any = None, /, **inputs: Any) -> None:
        """Copy values into inputs.

        Parameters
        ----------
        key : int or str, optional
            Number or name of an input.
        value : array, optional
            For ``key``; anything that numpy or DLPack understands.
        **inputs : array
            More inputs by name.

        Raises
        ------
        InputError
            For an unknown input, or a value of another shape or dtype.
        """
        if key is not None:
            self._copy_in(self._number(key), value)
        for name, given in inputs.items():
            self._copy_in(self._number(name), given)

    def load_params(self, params: Mapping[str, Any] | bytes | bytearray) -> None:
        """Set several inputs.

        Parameters
        ----------
        params : mapping of str to array, or bytes
            By name; bytes are those of ``tvm.runtime.save_param_dict``.

        Raises
        ------
        InputError
            If the bytes cannot be read, for what is no mapping, or as :meth:`set_input`.
        """
        given = _read_params(bytes(params)) if isinstance(params, bytes | bytearray) else params
        if not isinstance(given, Mapping):
            raise InputError(
                f"the parameters are a {type(given).__name__}; give values by name, or the bytes "
                "of tvm.runtime.save_param_dict"
            )
        for name, value in given.items():
            self.set_input(str(name), value)

    def run(self, **inputs: Any) -> None:
        """Run the model on the inputs that are set, and on the state that the run before left.

        Parameters
        ----------
        **inputs : array
            Are set before, by name.

        Raises
        ------
        InputError
            As :meth:`set_input`, or if values of inputs lead to sizes that the model forbids.
        RuntimeError
            If an rTask waited for another vEU for longer than the build's ``wait_limit``.
        """
        if inputs:
            self.set_input(**inputs)
        left = self._run()
        if left:
            self._take_over(left)

    def _run(self) -> list[Any]:
        """Run once; what it leaves in the place of the states.

        They stay as they are, but for those that are changed in place.
        """
        if not self._prepare_thread():
            found: list[Any] = self._elsewhere(self._run)
            return found
        if self._kernel is not None:
            self._kernel(*self._arguments)
            return [self._arguments[place] for place in self._state_places]
        results, count = _flat(self._run_main()), self.get_num_outputs()
        self._outputs = results[:count]
        return results[count:]

    def _take_over(self, left: list[Any]) -> None:
        """What a run left is the state of the next one, which writes where this one read."""
        direct = self._description.direct
        if direct is None:
            # It may be an input's own tensor or a constant's, or the same for two states.
            self._states = [_copy(tensor, self._device) for tensor in left]
            return
        for number, (place, tensor) in enumerate(
            zip(self._state_places, self._states, strict=True)
        ):
            if direct.outputs.count(place - self._first_output) > 1:
                left[number] = tensor.copyfrom(left[number])
            else:
                self._arguments[place] = tensor
        first = len(self._inputs)
        for position, number in enumerate(direct.inputs):
            if number >= first:
                self._arguments[position] = left[number - first]
        self._states = left

    @property
    def state(self) -> dict[str, Any]:
        """What the next run finds, by name: tensors that may be written to until then."""
        names = (state.tensor.name for state in self._description.states)
        return dict(zip(names, self._states, strict=True))

    def reset_state(self) -> None:
        """Let the next run find what the first one did."""
        states = self._description.states
        given = iter([] if all(each.zero for each in states) else self._vm[INITIAL_STATE]())
        for info, tensor in zip(states, self._states, strict=True):
            tensor.copyfrom(self._empty(info.tensor) if info.zero else next(given))

    def __call__(self, *values: Any, **inputs: Any) -> list[Any]:
        """Set inputs by position or by name, run, and return all outputs; see :meth:`run`."""
        for number, value in enumerate(values):
            self.set_input(number, value)
        self.run(**inputs)
        return [self.get_output(number) for number in range(self.get_num_outputs())]

    def get_input(self, index: int | str) -> Any:
        """The tensor that an input is read from; writing to it is setting the input.

        Parameters
        ----------
        index : int or str
            Number or name of an input; for an unknown one an InputError is raised.

        Returns
        -------
        tvm.runtime.Tensor
        """
        return self._inputs[self._number(index)]

    def get_output(self, index: int | str, out: Any | None = None) -> Any:
        """An output of the last run; the next run overwrites it.

        Parameters
        ----------
        index : int or str
            Number or name of an output.
        out : tvm.runtime.Tensor, optional
            Copy the output there and return it.

        Returns
        -------
        tvm.runtime.Tensor

        Raises
        ------
        InputError
            For an unknown output, before the first run of some models, or if ``out`` is no tensor
            or has another shape or dtype.
        """
        names = [info.name for info in self._description.outputs]
        number = _number("output", index, names)
        if not self._outputs:
            raise InputError("no output yet: call run() first")
        output = self._outputs[number]
        if out is None:
            return output
        if not isinstance(out, tvm.runtime.Tensor):
            raise InputError(f"out is a {type(out).__name__}; give a tvm.runtime.Tensor")
        if (out.shape, out.dtype) != (output.shape, output.dtype):
            raise InputError(
                f"output {number} is {output.dtype} of shape {tuple(output.shape)}; "
                f"out is {out.dtype} of shape {tuple(out.shape)}"
            )
        return output.copyto(out)

    def get_num_inputs(self) -> int:
        """Number of inputs."""
        return len(self._description.inputs)

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._description.outputs)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...] | None], dict[str, str]]:
        """Shapes and dtypes of the inputs by name; a shape is None where it is dynamic."""
        infos = self._description.inputs
        return {i.name: i.shape for i in infos}, {i.name: i.dtype for i in infos}

    def get_input_index(self, name: str) -> int:
        """Number of an input, -1 if there is none of that name."""
        return self._names.index(name) if name in self._names else -1

    def benchmark(self, repeat: int = 5, number: int = 5, warm_up: int = 3) -> BenchmarkResult:
        """Time runs on the inputs that are set; they leave the state as it was.

        Parameters
        ----------
        repeat : int
            Times that are taken, at least 1.
        number : int
            Runs of each, at least 1: its time is their mean.
        warm_up : int
            Runs before, which are not timed.

        Returns
        -------
        BenchmarkResult
            ``repeat`` times in seconds, and their mean, median and so on.

        Raises
        ------
        InputError
            For a number that is out of range.
        """
        counts = (repeat, number, warm_up)
        whole = all(isinstance(count, SupportsIndex) for count in counts)
        if not whole or repeat < 1 or number < 1 or warm_up < 0:
            raise InputError(
                f"repeat is {repeat}, number is {number}, warm_up is {warm_up}; they are whole "
                "numbers, the first two at least 1, the last at least 0"
            )
        with self._state_kept():
            for _ in range(warm_up):
                self._run()
            self._device.sync()
            return BenchmarkResult(tuple(self._time(number) for _ in range(repeat)))

    def profile(self, runs: int = 21) -> Profile:
        """Write down when every rTask starts and stops, in the run of median length.

        The inputs are those that are set. A stamp costs some ten nanoseconds; runs with and without
        stamps take turns, so that the profile can say what they cost in all.

        Parameters
        ----------
        runs : int
            Of each kind.

        Returns
        -------
        Profile
            Draws itself in a notebook; its timeline is in seconds.

        Raises
        ------
        InputError
            For a model that is more than one planned region, less than one run, or a back end
            that cannot profile.
        """
        if not isinstance(runs, SupportsIndex) or runs < 1:
            raise InputError(f"runs is {runs!r}; it must be a whole number of at least 1")
        direct = self._description.direct
        if direct is None:
            raise InputError(
                "only a model that is one planned region can be profiled; "
                "`tvm-rammer explain` says what is left out of this one"
            )
        if (stamps := self._description.backend.stamps) is None:
            name = self._description.backend.name
            raise InputError(f"the back end {name!r} profiles nothing; build for another one")
        if not self._prepare_thread():
            return self._elsewhere(lambda: self.profile(runs))
        program = self._description.programs[direct.region]
        with self._state_kept():
            return profile_kernel(
                stamps, self._kernel, self._arguments, len(direct.inputs), program, runs
            )

    @contextmanager
    def _state_kept(self) -> Iterator[None]:
        """Let runs leave the state as it was, also what they change in place."""
        changed = [
            tensor
            for state, tensor in zip(self._description.states, self._states, strict=True)
            if state.in_place
        ]
        kept = [_copy(tensor, self._device) for tensor in changed]
        try:
            yield
        finally:
            for tensor, before in zip(changed, kept, strict=True):
                tensor.copyfrom(before)

    def _time(self, number: int) -> float:
        started = time.perf_counter()
        for _ in range(number):
            self._run()
        # Some devices run on after the call.
        self._device.sync()
        return (time.perf_counter() - started) / number

    def _run_main(self) -> Any:
        """Run the VM; sizes that it checks against the model may follow from values of inputs."""
        try:
            return self._vm["main"](*self._inputs, *self._states)
        except RuntimeError as error:
            if (sizes := _SIZES_DIFFER.search(str(error))) is None:
                raise
            found, expected, axis = sizes.groups()
            raise InputError(
                f"the values of the inputs lead to a tensor whose dimension {axis} is {found}, "
                f"and the model says {expected}: give values from which sizes follow that fit"
            ) from error

    def _bind_kernel(self) -> None:
        """Prepare the call of the region that ``main`` consists of."""
        direct = self._description.direct
        assert direct is not None
        self._kernel = self._binding.kernel(direct.region)
        constants, table = self._vm[STATE]()
        count = 1 + max(direct.outputs, default=-1)
        results: list[Any] = [None] * count
        made = [self._empty(info) for info in self._description.outputs]
        for state, tensor in zip(self._description.states, self._states, strict=True):
            made.append(tensor if state.in_place else self._empty(state.tensor))
        # Where several are one result of the kernel, it writes the first of them.
        for place, tensor in reversed(list(zip(direct.outputs, made, strict=True))):
            results[place] = tensor
        self._first_output = len(direct.inputs) + len((constants, table))
        count = self.get_num_outputs()
        self._state_places = [self._first_output + place for place in direct.outputs[count:]]
        self._outputs = [results[place] for place in direct.outputs[:count]]
        arena = tvm.runtime.empty(
            (self._description.arena_bytes(direct.region),), "uint8", self._device
        )
        given = [*self._inputs, *self._states]
        inputs = [given[number] for number in direct.inputs]
        self._arguments = [*inputs, constants, table, *results, arena]

    def _empty(self, info: TensorInfo) -> Any:
        return tvm.runtime.tensor(np.zeros(info.static_shape(), info.dtype), self._device)

    def _number(self, key: int | str) -> int:
        return _number("input", key, self._names)

    def _copy_in(self, number: int, value: Any) -> None:
        info = self._description.inputs[number]
        value = _readable(value, info.name)
        shape, dtype = tuple(map(int, value.shape)), str(value.dtype)
        if shape != info.shape or dtype != info.dtype:
            raise InputError(
                f"input {info.name!r} is {info.dtype} of shape {info.shape}; "
                f"got {dtype} of shape {shape}"
            )
        self._inputs[number].copyfrom(value)


def _copy(tensor: Any, device: Any) -> Any:
    return tvm.runtime.empty(tensor.shape, tensor.dtype, device).copyfrom(tensor)


def _readable(value: Any, name: str) -> Any:
    """A value as an array of numpy's, or as a tensor where numpy has no such type."""
    if isinstance(value, tvm.runtime.Tensor):
        return value
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        try:
            # bfloat16 of PyTorch, for one.
            return tvm_ffi.from_dlpack(value, require_contiguous=True)
        except (TypeError, AttributeError, ValueError, RuntimeError, BufferError) as other:
            reasons = f"by numpy: {one_line(error)}; by DLPack: {one_line(other)}"
            raise InputError(f"input {name!r} cannot be read {reasons}") from error


def _number(what: str, key: Any, names: Sequence[str]) -> int:
    """The number of an input or output that a user names by it or by name."""
    if isinstance(key, str):
        if key not in names:
            known = listed(map(repr, names))
            raise InputError(f"there is no {what} {key!r}; the model's {what}s are {known}")
        return names.index(key)
    if not isinstance(key, SupportsIndex) or not 0 <= key.__index__() < len(names):
        raise InputError(f"there is no {what} {key}; the model has {len(names)}, from 0")
    return key.__index__()


def _read_params(data: bytes) -> Mapping[str, Any]:
    try:
        return tvm.runtime.load_param_dict(data)
    except Exception as error:
        raise InputError(
            "the parameters cannot be read; give the bytes of tvm.runtime.save_param_dict"
        ) from error


def _flat(result: Any) -> list[Any]:
    """The tensors of a (nested) result in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [tensor for part in result for tensor in _flat(part)]
