"""Run an rProgram on the host, on real numbers, in any legal interleaving."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tvm_rammer.errors import InputError, PlanError
from tvm_rammer.rprogram.happens_before import Place, task_label, walk
from tvm_rammer.rprogram.program import ALIGNMENT, Buffer, RProgram, RTask, dtype_bytes
from tvm_rammer.rprogram.rows import root_of, row_strides

Array = npt.NDArray[np.generic]
Body = Callable[[int, int, "list[Array]"], None]


def legal_interleavings(program: RProgram, seed: int) -> Iterator[list[Place]]:
    """Random legal interleavings, without end; the same ones for the same seed.

    Yields
    ------
    list of (vEU, position)
        At each step one of the vEUs whose next rTask has all of its waits satisfied goes on.

    Raises
    ------
    PlanError
        If the program cannot come to its end: a wait is out of range, or waits form a cycle.
    """
    choice = random.Random(seed)
    while True:
        yield walk(program, choice.randrange)


def interpret_numeric(
    program: RProgram,
    order: Sequence[Place],
    bodies: Mapping[str, Body],
    inputs: Sequence[Array],
    constants: Array | None = None,
) -> list[Array]:
    """Compute the outputs of a program.

    Parameters
    ----------
    program : RProgram
    order : sequence of (vEU, position)
        A legal interleaving.
    bodies : mapping of str to Callable
        By ``RKernel.name``, called as ``body(start, stop, arrays)`` with one array per pointer of
        the kernel, aligned to :data:`ALIGNMENT` bytes.
    inputs : sequence of ndarray
    constants : ndarray of uint8, optional
        The pool of constants, ``program.constant_bytes`` long.
    """
    interpreter = NumericInterpreter(program, bodies, inputs, constants)
    interpreter.run(order)
    return interpreter.outputs


class Interpreter:
    """Steps through an interleaving and checks that it is legal.

    Methods are called as follows; a subclass overrides :meth:`run_task`::

        run(order)
            +-- run_task(veu, position, task), for each rTask
    """

    def __init__(self, program: RProgram) -> None:
        self.program = program

    def run(self, order: Sequence[Place]) -> None:
        """Run every rTask once, in the given order; PlanError if that is not a legal one."""
        veus = self.program.veus
        done = [0] * len(veus)
        for veu, position in order:
            if not (0 <= veu < len(veus) and position == done[veu] < len(veus[veu])):
                raise PlanError(
                    f"the order has rTask {position} of vEU {veu} where it does not come next; "
                    "take one from legal_interleavings"
                )
            task = veus[veu][position]
            for wait in task.waits:
                if done[wait.veu] < wait.count:
                    raise PlanError(
                        f"the order has {task_label(self.program, veu, position)} before rTask "
                        f"{wait.count - 1} of vEU {wait.veu}, which it waits for; "
                        "take one from legal_interleavings"
                    )
            if not task.gathers:
                self.run_task(veu, position, task)
            done[veu] += 1
        if sum(done) != self.program.num_tasks:
            raise PlanError(
                f"the order has {sum(done)} of the {self.program.num_tasks} rTasks; "
                "take one from legal_interleavings"
            )

    def run_task(self, veu: int, position: int, task: RTask) -> None:
        """What to do for one rTask."""
        raise NotImplementedError


class NumericInterpreter(Interpreter):
    """Calls the compiled bodies on memory of its own.

    Attributes
    ----------
    outputs : list of ndarray
    """

    def __init__(
        self,
        program: RProgram,
        bodies: Mapping[str, Body],
        inputs: Sequence[Array],
        constants: Array | None = None,
    ) -> None:
        super().__init__(program)
        missing = sorted({kernel.name for kernel in program.kernels} - set(bodies))
        if missing:
            raise InputError(f"no body for kernel {missing[0]!r}; pass one for every kernel")
        self._bodies = bodies
        spaces = {
            ("arena", 0): _memory(program.arena_bytes),
            ("constant", 0): _constant_pool(program, constants),
        }
        for buffer in program.buffers:
            if buffer.space == "input":
                spaces["input", buffer.index] = _input(buffer, inputs)
            elif buffer.space == "output":
                spaces["output", buffer.index] = _memory(buffer.nbytes)
        self._views = [
            _view(program.buffers, number, spaces) for number in range(len(program.buffers))
        ]
        by_index = sorted(
            (buffer.index, number)
            for number, buffer in enumerate(program.buffers)
            if buffer.space == "output"
        )
        self.outputs = [self._views[number] for _, number in by_index]

    def run_task(self, veu: int, position: int, task: RTask) -> None:
        op = self.program.operators[task.operator]
        body = self._bodies[self.program.kernels[op.kernel].name]
        body(task.start, task.stop, [self._views[buffer] for buffer in op.arguments])


def _view(
    buffers: Sequence[Buffer], number: int, spaces: Mapping[tuple[str, int], npt.NDArray[np.uint8]]
) -> Array:
    """The memory of a buffer as an array of its type; that of a part has strides."""
    buffer, whole = buffers[number], buffers[root_of(buffers, number)]
    space = spaces[whole.space, whole.index if whole.space in ("input", "output") else 0]
    memory = space[whole.offset : whole.offset + whole.nbytes]
    if buffer is whole:
        return memory.view(buffer.dtype).reshape(buffer.shape)
    item = dtype_bytes(buffer.dtype)
    length = buffer.nbytes // (whole.nbytes // buffer.pitch) // item
    strides = row_strides(buffer.shape, length, buffer.pitch // item)
    if strides is None:
        raise PlanError(f"buffer {buffer.name!r} does not fall into rows; verify the program")
    return np.ndarray(
        buffer.shape, buffer.dtype, memory.data, buffer.offset, [item * n for n in strides]
    )


def _memory(nbytes: int) -> npt.NDArray[np.uint8]:
    """Aligned bytes, filled with a pattern that is NaN in every floating-point type."""
    memory = np.full(nbytes + ALIGNMENT, 0xFF, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _constant_pool(program: RProgram, constants: Array | None) -> npt.NDArray[np.uint8]:
    pool = _memory(program.constant_bytes)
    given = np.empty(0, np.uint8) if constants is None else constants
    if given.dtype != np.uint8 or given.shape != pool.shape:
        raise InputError(
            f"the pool of constants is {given.dtype}{list(given.shape)}; "
            f"pass uint8[{program.constant_bytes}]"
        )
    pool[:] = given
    return pool


def _input(buffer: Buffer, inputs: Sequence[Array]) -> npt.NDArray[np.uint8]:
    """A copy, so that a body that writes where it should read changes nothing of the caller's."""
    if buffer.index >= len(inputs):
        raise InputError(
            f"no array for input {buffer.index} ({buffer.name!r}), only {len(inputs)} were passed; "
            "pass every input"
        )
    array = inputs[buffer.index]
    if array.shape != buffer.shape or array.dtype != np.dtype(buffer.dtype):
        raise InputError(
            f"input {buffer.index} ({buffer.name!r}) is {array.dtype}{list(array.shape)}; "
            f"pass {buffer.dtype}{list(buffer.shape)}"
        )
    memory = _memory(array.size * dtype_bytes(buffer.dtype))
    memory[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memory
