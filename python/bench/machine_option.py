"""The option that names a machine to plan for that is not this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tvm_rammer.errors import InputError
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.described_machine import (
    DescribedMachine,
    described_machine,
    described_machines,
)

F = TypeVar("F", bound=Callable[..., Any])


class _Machine(click.ParamType):
    name = "NAME|FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> DescribedMachine:
        try:
            return value if isinstance(value, DescribedMachine) else described_machine(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def machine_option(function: F) -> F:
    """Add ``--machine``, which arrives as ``described``."""
    return click.option(
        "--machine",
        "described",
        type=_Machine(),
        help=f"Plan for {', '.join(described_machines())}, or what a file like theirs describes.",
    )(function)


def described_veus(described: DescribedMachine, known: VDevice, num_veus: int) -> VDevice:
    """A described machine with the kernels of ``known``, to plan for so many vEUs.

    Raises
    ------
    InputError
        If it has fewer hardware threads.
    """
    if num_veus > described.threads:
        raise InputError(
            f"{num_veus} vEUs are more than the {described.threads} hardware threads of "
            f"{described.name}; give at most as many"
        )
    return described.applied_to(known).with_veus(num_veus)
