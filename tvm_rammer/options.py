"""What a user may choose about a plan."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

import tvm

from tvm_rammer.backend import backend_for, backend_named, resolve_target
from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE, MAX_WAIT_LIMIT, WAIT_LIMIT
from tvm_rammer.errors import InputError
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.vdevice import positive_count
from tvm_rammer.schedule import AUTO, check_policy

Form = Literal["program", "wavefront", "per-op"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class Options:
    """What a user may choose about a plan.

    Attributes
    ----------
    policy : str
        One of :func:`tvm_rammer.schedule.choices`.
    num_veus : int, optional
        vEUs to plan for; the cores that this process may use if not given.
    form : {"program", "wavefront", "per-op"}
        One launch for a region; one launch and one kernel symbol per wavefront; or no plan at all,
        the same kernels operator after operator (RammerBase).
    oversubscribe : bool
        Allow more vEUs than hardware threads: correct, but slow.
    winograd_tolerance : float
        Largest error that a convolution may gain by Winograd's algorithm, relative to the root mean
        square of its outputs (see ``winograd.accuracy``); 0 for none.
    wait_limit : float
        Seconds after which a run gives up waiting for another vEU, with an error; 0 waits for ever.
    max_arena_bytes : int, optional
        Most memory for the intermediate results of a region. Plans that need more run on fewer
        vEUs; without a plan that fits the build fails.
    backend : str, optional
        Name of the back end; the one that serves the target's kind if not given.
    round_data : bool
        Where weights are 8 bits times a scale, round what many rows multiply to 8 bits too, each
        row by its largest magnitude, where there are instructions for it: products take less than
        half as long, and are off by a hundredth or two of their norm, several layers by more.
    """

    policy: str = AUTO
    num_veus: int | None = None
    form: Form = "program"
    oversubscribe: bool = False
    winograd_tolerance: float = DEFAULT_TOLERANCE
    wait_limit: float = WAIT_LIMIT
    max_arena_bytes: int | None = None
    backend: str | None = None
    round_data: bool = False

    def __post_init__(self) -> None:
        check_policy(self.policy)
        if self.backend is not None:
            backend_named(self.backend)
        if self.form not in FORMS:
            known = ", ".join(map(repr, FORMS))
            raise InputError(f"there is no form {self.form!r}; choose one of {known}")
        for name in ("num_veus", "max_arena_bytes"):
            if (count := getattr(self, name)) is not None:
                # Also numpy's integers, which no description could hold.
                object.__setattr__(self, name, positive_count(name, count))
        for name in ("oversubscribe", "round_data"):
            if not isinstance(given := getattr(self, name), bool):
                raise InputError(f"{name} is {given!r}: it must be True or False")
        if not _is_number(self.wait_limit) or self.wait_limit > MAX_WAIT_LIMIT:
            raise InputError(
                f"wait_limit is {self.wait_limit!r}: it must be a number of seconds from 0, which "
                f"waits for ever, to {MAX_WAIT_LIMIT:,}"
            )
        if not _is_number(self.winograd_tolerance):
            raise InputError(
                f"winograd_tolerance is {self.winograd_tolerance!r}: "
                "it must be a number of at least 0, which turns Winograd off"
            )

    @property
    def by_wave(self) -> bool:
        """Whether every wavefront is a launch of its own."""
        return self.form == "wavefront"

    def resolve(self, target: Any = None) -> Goal:
        """The target and the vDevice that the options come to; once for a build.

        Parameters
        ----------
        target : str, dict, Target or None
            As for :func:`tvm_rammer.resolve_target`.

        Raises
        ------
        InputError
            When the back end does not make kernels in this form.
        DeviceError
            When there is no such target, or its device has not so many vEUs.
        """
        resolved = resolve_target(target, self.backend)
        serving = backend_for(resolved, self.backend)
        if self.form not in serving.forms:
            known = " or ".join(map(repr, serving.forms))
            raise InputError(
                f"the back end {serving.name!r} makes no kernels of form {self.form!r}: "
                f"choose {known}"
            )
        vdevice = serving.vdevice(resolved, self.num_veus, self.oversubscribe)
        return Goal(self, resolved, vdevice)


@dataclass(frozen=True)
class Goal:
    """What is built for: a user's options, and the target and the vDevice that they come to."""

    options: Options
    target: tvm.target.Target
    vdevice: VDevice


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value) and value >= 0
    except OverflowError:
        return False
