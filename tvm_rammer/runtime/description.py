"""What a compiled library says about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm

from tvm_rammer.backend import Backend, backend_named, resolve_target, vdevice_for
from tvm_rammer.errors import LibraryError, PlanError, RammerError
from tvm_rammer.region.library_content import (
    DESCRIBE,
    Interface,
    LibraryContent,
    StateInfo,
    TensorInfo,
    other_format,
    unpacked,
)
from tvm_rammer.region.marks import LeftOut
from tvm_rammer.rprogram import RProgram
from tvm_rammer.rprogram.serialize import from_json
from tvm_rammer.schedule import CostModel, Decision, Explanation, Timeline, simulate
from tvm_rammer.units import listed


@dataclass(frozen=True)
class LibraryDescription:
    """The description that a library carries; as :meth:`LibraryContent.plain` makes it."""

    content: Mapping[str, Any]

    @cached_property
    def _said(self) -> LibraryContent:
        return LibraryContent.read(self.content)

    @property
    def num_veus(self) -> int:
        """vEUs that the library was planned for."""
        return self._said.num_veus

    @property
    def merged_rows(self) -> int:
        """Rows at most of products that were merged as they share a weight; 1 if none were."""
        return self._said.merged_rows

    @property
    def target(self) -> str:
        """The target that it was compiled for."""
        return self._said.target

    @property
    def vdevice(self) -> str:
        """The name of the device that it was planned for."""
        return self._said.vdevice

    @property
    def backend(self) -> Backend:
        """The back end that it was compiled by.

        Raises
        ------
        InputError
            When it is not installed here.
        """
        return backend_named(self._said.backend)

    @property
    def costs(self) -> CostModel:
        """What the device that it was planned for takes for everything but computing."""
        return self._said.costs

    @property
    def policy(self) -> str:
        """The policy that was asked for: ``"auto"`` where nothing was."""
        return self._said.options.policy

    @property
    def form(self) -> str:
        """The form of its kernels."""
        return self._said.options.form

    @property
    def round_data(self) -> bool:
        """Whether data may have been rounded that the model does not round."""
        return self._said.options.round_data

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """What the library takes and returns: one for each of the shapes that it was built for."""
        return self._said.interfaces

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The model's inputs, of the first shapes."""
        return self.interfaces[0].inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The model's outputs, of the first shapes."""
        return self.interfaces[0].outputs

    @property
    def states(self) -> tuple[StateInfo, ...]:
        """What every run leaves for the next one."""
        return self.interfaces[0].states

    @cached_property
    def programs(self) -> dict[str, RProgram]:
        """The rProgram of every region by its name, proved safe again."""
        found = {}
        for number, item in enumerate(self._said.programs):
            try:
                program = from_json(json.dumps(item))
            except PlanError as error:
                raise PlanError(f"programs[{number}]: {error}") from error
            found[program.name] = program
        return found

    @cached_property
    def explanations(self) -> dict[str, Explanation]:
        """What limits the plan of every region."""
        return {plan.region: plan.explanation for plan in self._said.plans}

    @cached_property
    def decisions(self) -> dict[str, Decision]:
        """Why every region has its plan; a region whose policy the user chose is missing."""
        return {
            plan.region: plan.decision for plan in self._said.plans if plan.decision is not None
        }

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Operators that are in no plan, and why."""
        return self._said.left_out

    def arena_bytes(self, region: str) -> int:
        """Bytes of the arena tensor that a region's kernel takes."""
        return self._said.arenas[region]

    def check(self) -> None:
        """Read all of it, and see that its parts are of the same regions.

        Raises
        ------
        ValueError
            With the path to what is wrong.
        PlanError
            If a plan is not safe.
        """
        said, regions = self._said, sorted(self.programs)
        if len(regions) < len(said.programs):
            raise ValueError("programs has two of one name; give each its own")
        for name, named in (
            ("plans", sorted(plan.region for plan in said.plans)),
            ("arenas", sorted(said.arenas)),
        ):
            if named != regions:
                raise ValueError(
                    f"{name} is of {listed(named)}, programs of "
                    f"{listed(regions)}; list the same regions"
                )
        for name in ("num_veus", "merged_rows"):
            if (count := getattr(said, name)) < 1:
                raise ValueError(f"{name} is {count}; it must be at least 1")
        if not said.interfaces:
            raise ValueError("interfaces is empty; list what the library takes and returns")
        for interface in said.interfaces:
            kept = (state.tensor for state in interface.states)
            for info in (*interface.inputs, *interface.outputs, *kept):
                if any(isinstance(size, int) and size < 0 for size in info.shape or ()):
                    raise ValueError(
                        f"{info.name!r} has the shape {info.shape}; give it sizes from 0"
                    )
        try:
            resolve_target(said.target, said.backend)
        except RammerError as error:
            raise ValueError(f"target: {error}") from error


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
    content = unpacked(packed.numpy())
    if problem := other_format(content["format"]):
        raise LibraryError(f"{where}: {problem}; compile the model again")
    if content["tvm"].split("+")[0] != tvm.__version__.split("+")[0]:
        raise LibraryError(
            f"{where}: compiled with TVM {content['tvm']}, this is TVM {tvm.__version__}; "
            "compile the model again"
        )
    return LibraryDescription(content)


def simulated(description: LibraryDescription) -> list[tuple[RProgram, Timeline]]:
    """Simulate every plan with the costs of the device that it was made for."""
    backend = description.backend
    costs = backend.costs(vdevice_for(description.target, backend=backend.name))
    return [(program, simulate(program, costs)) for program in description.programs.values()]
