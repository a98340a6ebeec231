"""GraphModule: runs a compiled model, with the graph executor's methods.

What a model keeps between runs, such as a decoder's keys and values, is of the instance: the kernel
takes it as inputs and writes its new values as outputs, and the two change places after a run.
Where only a part of a tensor is replaced, both are one tensor, and the rest is never copied.

A library that was built for several shapes has a function for each. The shapes of the inputs that
are set choose it, and all find the same states.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import mean, median, stdev
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvm_rammer.errors import InputError, LibraryError
from tvm_rammer.frontend.loaded_model import one_line
from tvm_rammer.region.library_content import (
    INITIAL_STATE,
    Interface,
    Shape,
    is_static,
    sizes_of,
)
from tvm_rammer.runtime.bound_function import BoundFunction, copied, zeros
from tvm_rammer.runtime.description import LibraryDescription
from tvm_rammer.runtime.profile import Profile, profile_kernel
from tvm_rammer.units import listed


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
        self._by_shapes = {interface.shapes: interface for interface in description.interfaces}
        self._known_shapes = [
            list(dict.fromkeys(each)) for each in zip(*self._by_shapes, strict=True)
        ]
        #: The shapes of the inputs that are set; the tensors of all shapes that are known, and of
        #: each input the last one of another shape; and functions that ran.
        self._shapes = list(description.interfaces[0].shapes)
        self._tensors: dict[tuple[int, Any], Any] = {}
        self._others: dict[int, Any] = {}
        self._functions: dict[str, BoundFunction] = {}
        self._states = [zeros(state.tensor, device) for state in description.states]
        self.reset_state()
        #: The one for the shapes that are set, and the one that has outputs.
        self._function: BoundFunction | None = None
        self._last = None if self._unset() else self._chosen()

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
            As :meth:`set_input`, if the library was built for other shapes of the inputs together,
            if an input whose sizes each run decides is not set, or if values of inputs lead to
            sizes that the model forbids.
        RuntimeError
            If an rTask waited for another vEU for longer than the build's ``wait_limit``.
        """
        if inputs:
            self.set_input(**inputs)
        left = self._run()
        if left and self._last is not None:
            self._states = self._last.take_over(self._states, left)

    def _run(self) -> list[Any]:
        """Run once; what it leaves in the place of the states."""
        if not self._prepare_thread():
            found: list[Any] = self._elsewhere(self._run)
            return found
        self._last = self._function or self._chosen()
        return self._last.run(self._states)

    def _chosen(self) -> BoundFunction:
        """The function for the shapes of the inputs that are set."""
        if unset := self._unset():
            raise InputError(
                f"no value is set for {self._shapes_text(self._shapes, unset)}: each run has sizes "
                "of its own"
            )
        interface = self._by_shapes.get(tuple(self._shapes)) or self._open_interface()
        if interface is None:
            known = "; or ".join(map(self._shapes_text, self._by_shapes))
            raise InputError(
                f"the inputs are {self._shapes_text(self._shapes)}; the library was built for "
                f"{known}: set all inputs to the shapes of one"
            )
        inputs = [self._tensor(number, shape) for number, shape in enumerate(self._shapes)]
        if interface.function not in self._functions:
            direct = interface.direct
            self._functions[interface.function] = BoundFunction(
                interface,
                self._vm,
                self._binding,
                inputs,
                0 if direct is None else self._description.arena_bytes(direct.region),
                self._device,
            )
        self._function = self._functions[interface.function]
        self._function.read_inputs(inputs)
        return self._function

    def _unset(self) -> list[int]:
        """The inputs whose sizes no value has told yet."""
        return [
            number
            for number, shape in enumerate(self._shapes)
            if shape is not None and not is_static(shape)
        ]

    def _open_interface(self) -> Interface | None:
        """The first with names for sizes that the inputs fit."""
        every = self._by_shapes.items()
        fitting = (each for shapes, each in every if sizes_of(shapes, self._shapes) is not None)
        return next(fitting, None)

    def _shapes_text(self, shapes: Sequence[Any], numbers: Sequence[int] | None = None) -> str:
        every = range(len(self._names)) if numbers is None else numbers
        return listed(f"{self._names[number]} {shapes[number]}" for number in every)

    def _tensor(self, number: int, shape: Any) -> Any:
        """What an input of a shape is read from; functions for other shapes of others share it.

        Of shapes that no interface has as they are, of which there may be any number, the last one
        is kept.
        """
        info = replace(self._description.inputs[number], shape=shape)
        if shape not in self._known_shapes[number]:
            last = self._others.get(number)
            if last is None or tuple(last.shape) != shape:
                self._others[number] = zeros(info, self._device)
            return self._others[number]
        if (number, shape) not in self._tensors:
            self._tensors[number, shape] = zeros(info, self._device)
        return self._tensors[number, shape]

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
            tensor.copyfrom(zeros(info.tensor, self._device) if info.zero else next(given))

    def __call__(self, *values: Any, **inputs: Any) -> list[Any]:
        """Set inputs by position or by name, run, and return all outputs; see :meth:`run`."""
        for number, value in enumerate(values):
            self.set_input(number, value)
        self.run(**inputs)
        return [self.get_output(number) for number in range(self.get_num_outputs())]

    def get_input(self, index: int | str) -> Any:
        """The tensor that an input of the shape that is set is read from; writing to it sets it.

        Parameters
        ----------
        index : int or str
            Number or name of an input; for an unknown one an InputError is raised.

        Returns
        -------
        tvm.runtime.Tensor
        """
        number = self._number(index)
        return self._tensor(number, self._shapes[number])

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
        if self._last is None or not self._last.outputs:
            raise InputError("no output yet: call run() first")
        output = self._last.outputs[number]
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

    def get_input_info(self) -> tuple[dict[str, Shape | None], dict[str, str]]:
        """Shapes that are set and dtypes of the inputs by name.

        Until a value is set, a size that each run decides is its name; where not even the number of
        axes is known, the shape is None.
        """
        infos = self._description.inputs
        return dict(zip(self._names, self._shapes, strict=True)), {i.name: i.dtype for i in infos}

    @property
    def shapes(self) -> list[dict[str, Shape | None]]:
        """Shapes that the inputs may have together, by name: what the library was built for."""
        return [dict(zip(self._names, shapes, strict=True)) for shapes in self._by_shapes]

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
        stamps take turns, so that the profile can say what they cost in all. On a GPU time 0 is
        when the first rTask starts.

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
        function = self._chosen()
        direct = function.interface.direct
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
            function.run(self._states)
            return profile_kernel(
                stamps, function.kernel, function.arguments, len(direct.inputs), program, runs
            )

    @contextmanager
    def _state_kept(self) -> Iterator[None]:
        """Let runs leave the state as it was, also what they change in place."""
        states = self._chosen().interface.states
        changed = [
            tensor for state, tensor in zip(states, self._states, strict=True) if state.in_place
        ]
        kept = [copied(tensor, self._device) for tensor in changed]
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

    def _number(self, key: int | str) -> int:
        return _number("input", key, self._names)

    def _copy_in(self, number: int, value: Any) -> None:
        info = self._description.inputs[number]
        value = _readable(value, info.name)
        shape, dtype = tuple(map(int, value.shape)), str(value.dtype)
        known = self._known_shapes[number]
        fits = shape in known or any(sizes_of([each], [shape]) is not None for each in known)
        if not fits or dtype != info.dtype:
            raise InputError(
                f"input {info.name!r} is {info.dtype} of shape {' or '.join(map(str, known))}; "
                f"got {dtype} of shape {shape}"
            )
        if shape != self._shapes[number]:
            self._shapes[number], self._function = shape, None
        self._tensor(number, shape).copyfrom(value)


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
