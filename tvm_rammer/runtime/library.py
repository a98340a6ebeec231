"""A compiled model: code, constants and plans; it can be run, saved, looked at and planned anew."""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import tvm
from tvm import relax
from tvm.runtime import Executable
from tvm.support import cc

from tvm_rammer.backend.protocol import Backend
from tvm_rammer.errors import InputError, LibraryError, ModelError, last_line
from tvm_rammer.machine.target import architecture
from tvm_rammer.one_at_a_time import one_at_a_time
from tvm_rammer.options import Goal, Options
from tvm_rammer.progress import tell
from tvm_rammer.region.marks import is_region
from tvm_rammer.rprogram import RProgram
from tvm_rammer.runtime.checksum import seal
from tvm_rammer.runtime.description import LibraryDescription, simulated
from tvm_rammer.runtime.graph_module import GraphModule
from tvm_rammer.runtime.link import link_shared_object
from tvm_rammer.runtime.private_copy import PrivateCopy
from tvm_rammer.runtime.report import Report, make_report
from tvm_rammer.transform.attach_description import ModelNames
from tvm_rammer.transform.pipeline import Partitions, lower_for_vm, plan_module
from tvm_rammer.transform.stock_memory import stock_plan_bytes
from tvm_rammer.units import counted, listed
from tvm_rammer.view.html import timeline_frame
from tvm_rammer.view.svg import timeline_svg
from tvm_rammer.whole_files import advice_for, working_folder

#: What TVM says of an operator that no pass has lowered.
_LEFT_OVER = re.compile(r"CodeGenVM cannot emit.*Offending call:\s*R\.([\w.]+)", re.DOTALL)

#: rTasks of a page inside a notebook, which is saved with it: each takes some 90 bytes.
_MOST_TASKS = 20_000
_FULL = OSError(errno.ENOSPC, "No space left on device")


@dataclass(frozen=True, repr=False)
class Library:
    """A compiled model.

    ``lib.create()`` (or ``lib["default"](tvm.cpu())``, as with ``relay.build``) makes an instance
    that runs; ``lib.executable`` is for the Relax VM.

    Attributes
    ----------
    executable : tvm.runtime.Executable or tvm.runtime.Module
        For ``relax.VirtualMachine``.
    description : LibraryDescription
        What the library says about itself.
    source : Partitions, optional
        What it was planned from: only a library that was built in this process can be planned anew.
    options : Options, optional
        Those of the build.
    names : sequence of ModelNames
        What the model itself calls its inputs and outputs, and what it keeps between runs.
    copy : PrivateCopy, optional
        The file in memory that a loaded library runs from.
    """

    executable: Any
    description: LibraryDescription
    source: Partitions | None = None
    options: Options | None = None
    names: Sequence[ModelNames] = ()
    copy: PrivateCopy | None = field(default=None, compare=False)

    @property
    def module(self) -> tvm.runtime.Module:
        """The runnable module."""
        if isinstance(self.executable, Executable):
            return self.executable.jit()
        return self.executable

    @property
    def programs(self) -> dict[str, RProgram]:
        """The rProgram of every region by its kernel's symbol."""
        return self.description.programs

    @cached_property
    def report(self) -> Report:
        """What was planned, what was left out and why, and how much memory it takes."""
        seconds = {} if self.source is None else self.source.compiler.compile_seconds()
        return make_report(self.description, self._stock_bytes(), seconds)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__}: {self._summary()}>"

    def __reduce__(self) -> NoReturn:
        raise LibraryError(
            "a Library cannot be pickled or copied; write it with export_library(path), and read "
            "that with tvm_rammer.load(path)"
        )

    def _summary(self) -> str:
        """What was planned, in a few words; ``lib.report`` says more."""
        programs = self.programs.values()
        policies = " and ".join(dict.fromkeys(program.policy for program in programs))
        operators = counted(sum(len(program.operators) for program in programs), "operator")
        veus = counted(self.description.num_veus, "vEU")
        return f"{policies}, {operators} on {veus}" if programs else "nothing planned"

    def _repr_html_(self) -> str | None:
        """The simulated timelines, where a notebook shows them; None leaves it the picture."""
        if sum(program.num_tasks for program in self.programs.values()) > _MOST_TASKS:
            return None
        return self._drawn(timeline_frame)

    def _repr_svg_(self) -> str | None:
        """The same as a picture, where there are no scripts; None if nothing was planned."""
        return self._drawn(timeline_svg)

    def _drawn(self, draw: Callable[..., str]) -> str | None:
        plans = simulated(self.description)
        if not plans:
            return None
        programs, timelines = [program for program, _ in plans], [times for _, times in plans]
        return draw(programs, timelines, self._summary())

    def _stock_bytes(self) -> dict[str, int]:
        if self.source is None:
            return {}
        mod = self.source.with_rows(self.description.merged_rows)
        return {
            symbol.name_hint: stock_plan_bytes(func, mod)
            for symbol, func in mod.functions_items()
            if is_region(func)
        }

    def create(self, device: Any = None) -> GraphModule:
        """Make an instance of the model.

        Parameters
        ----------
        device : tvm.runtime.Device, optional
            Of the kind that the library is for; the first one if not given.

        Raises
        ------
        DeviceError
            For a device of another kind.
        InputError
            For inputs of dynamic shapes, or if the library's back end is not installed.
        LibraryError
            When the library cannot run on the device.
        """
        backend = self.description.backend
        device = backend.device(device)
        backend.check_device(device, tvm.target.Target(self.description.target))
        try:
            # What was loaded is shared as long as it is in use; what was built may go.
            shared = None if self.copy is None else self
            return GraphModule(self.module, self.description, device, shared)
        except (RuntimeError, tvm.error.InternalError) as error:
            raise LibraryError(
                f"the library does not run here ({last_line(error)}): it was compiled for "
                f"{self.description.target}; export it to a machine of that kind"
            ) from error

    def __getitem__(self, name: str) -> Any:
        """``lib["default"]`` makes instances; any other name is a function of the module."""
        if name == "default":
            return self.create
        return self.module.get_function(name, query_imports=True)

    def replan(
        self, policy: str | None = None, num_veus: int | None = None, **options: Any
    ) -> Library:
        """The same compiled kernels under another plan.

        Where products share a weight, another number of vEUs may merge more or fewer of them: that
        makes other operators, whose kernels are compiled if they are new.

        Parameters
        ----------
        policy, num_veus, **options
            See :class:`~tvm_rammer.options.Options`; what is not given stays as it was.

        Returns
        -------
        Library
            A new one; this one stays as it is.

        Raises
        ------
        LibraryError
            For a library that was loaded from a file.
        InputError
            For an option that is unknown, does not fit or needs a build of its own.
        PlanError
            No plan fits into ``max_arena_bytes``.
        """
        if self.source is None or self.options is None:
            raise LibraryError("a library that was loaded cannot be planned anew: build the model")
        known = [field.name for field in fields(Options)]
        if unknown := sorted(set(options) - set(known)):
            raise InputError(f"there is no option {unknown[0]!r}; choose of {listed(known)}")
        if policy is not None:
            options["policy"] = policy
        if num_veus is not None:
            options["num_veus"] = num_veus
        changed = replace(self.options, **options)
        if (changed.form == "per-op") != (self.options.form == "per-op"):
            raise InputError('form="per-op" needs a build of its own')
        if changed.backend != self.options.backend:
            raise InputError("another back end needs a build of its own")
        for name in ("winograd_tolerance", "round_data"):
            if getattr(changed, name) != getattr(self.options, name):
                raise InputError(f"another {name} needs a build of its own")
        return assemble(self.source, changed.resolve(self.source.compiler.target), self.names)

    def export_library(self, path: str | os.PathLike[str]) -> Path:
        """Write the library as a shared object that TVM's runtime loads.

        The file appears complete or not at all, and ends with a checksum.

        Parameters
        ----------
        path : path
            Ends in ``.so``.

        Returns
        -------
        Path

        Raises
        ------
        InputError
            When the back end makes no files.
        LibraryError
            When the path cannot be written or no C++ compiler is found to link it.
        """
        target = Path(path)
        if target.suffix != ".so":
            raise LibraryError(f"{target}: a library's name ends in .so")
        require_exports(self.description.backend, target)
        if not isinstance(self.executable, Executable):
            raise LibraryError(f"{target}: a loaded library is a file already; copy that")
        compiled_for = tvm.target.Target(self.description.target)
        self.description.backend.complete(self.executable.mod, compiled_for)
        try:
            with working_folder(target.parent) as folder:
                written = folder / target.name
                link_shared_object(self.executable.mod, architecture(compiled_for), written, folder)
                seal(written)
                os.replace(written, target)
        except (OSError, RuntimeError, TypeError) as error:
            problem = link_problem(error, architecture(compiled_for))
            raise LibraryError(f"{target}: {problem}") from error
        return target


@one_at_a_time
def assemble(partitions: Partitions, goal: Goal, names: Sequence[ModelNames] = ()) -> Library:
    """Plan a partitioned module and link the library."""
    planned = plan_module(partitions, goal, names)
    tell("linking")
    lowering = lower_for_vm(partitions.compiler)
    try:
        executable = relax.build(planned.module, goal.target, relax_pipeline=lowering)
    except tvm.error.InternalError as error:
        left = _LEFT_OVER.search(str(error))
        if left is None:
            raise
        raise ModelError(
            f"TVM has no code for the operator {left[1]} where only the run tells the shapes of "
            "what it reads: let them follow from the shapes of the inputs, or give what decides "
            "on them as `constants`"
        ) from error
    description = LibraryDescription(planned.content)
    return Library(executable, description, partitions, goal.options, names)


def require_exports(backend: Backend, path: Path) -> None:
    """Raise an InputError if libraries of a back end cannot be written to files."""
    if not backend.exports:
        raise InputError(
            f"{path}: the back end {backend.name!r} runs in the process that builds only; "
            "build without it for a library that can be written"
        )


def link_problem(error: Exception, architecture: str) -> str:
    """Cause and advice, in one line.

    Parameters
    ----------
    error : Exception
        What TVM raised when it called the compiler.
    architecture : str
        What the library is for, e.g. ``"aarch64"``.
    """
    compiler = cc.get_cc()
    if compiler is None:
        return "no C++ compiler is found; install g++, or set CXX to one"
    if isinstance(error, OSError) and error.filename == compiler:
        return f"CXX is {compiler!r} ({error.strerror}); set it to a C++ compiler"
    if isinstance(error, OSError):
        return f"cannot be written: {error.strerror or error}; {advice_for(error)}"
    if str(_FULL.strerror) in str(error):
        return f"cannot be written: {_FULL.strerror}; {advice_for(_FULL)}"
    if architecture != platform.machine():
        return (
            f"cannot be linked ({compiler} does not link for {architecture}); "
            f"set CXX to a compiler that does, e.g. CXX={architecture}-linux-gnu-g++"
        )
    return f"cannot be linked ({_said(error)}); correct that, or set CXX to another compiler"


def _said(error: Exception) -> str:
    """What the compiler complains about, in its own words."""
    output = str(error).removeprefix("Compilation error:").partition("\nCommand line:")[0]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if "error:" in line.lower()]
    return next(iter([*complaints, *reversed(lines), type(error).__name__]))
