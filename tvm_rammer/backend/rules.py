"""Rules from outside of the package, which compete with a back end's own for operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tvm import tirx

from tvm_rammer.backend.registry import backend_named
from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice
from tvm_rammer.plug_ins import home_of, register_offered

#: Entry points of other packages.
GROUP = "tvm_rammer.rules"

_registered: dict[tuple[str, str], Template[Any, Any]] = {}


def register_rule(rule: Template[Any, Any], backend: str = "cpu") -> None:
    """Let a rule compete with those of a back end.

    For every operator that it matches, the usual configurations of the rule are emitted and priced
    as the back end's own are; what takes least is compiled. The tuner searches its whole space.
    Other packages may offer theirs by the entry-point group ``tvm_rammer.rules``, each entry of
    which is a callable that makes a rule for processors; that is where the tuner's own processes
    find them too.

    Parameters
    ----------
    rule : Template
        With a name that no other rule of the back end has.
    backend : str
        Name of the back end.

    Raises
    ------
    InputError
        When it is no rule, its name is taken, or the back end asks no rules.
    """
    if not isinstance(rule, Template):
        raise InputError(
            f"{home_of(rule)} is no rule: give register_rule a tvm_rammer.kernel.scheduled.Template"
        )
    own = backend_named(backend).rules
    if not own:
        raise InputError(f"the back end {backend!r} asks no rules, such as {_named(rule)}")
    known = _registered.get((backend, rule.name))
    if rule.name in own or known is not None:
        taken = "the back end's own" if known is None else home_of(known)
        raise InputError(
            f"there is a rule {rule.name!r} already, {taken}: give {home_of(rule)} another name"
        )
    _registered[backend, rule.name] = rule


def rules_for(backend: str) -> list[CheckedRule]:
    """The rules from outside for a back end."""
    find_rules()
    return [CheckedRule(rule) for (name, _), rule in _registered.items() if name == backend]


@cache
def find_rules() -> None:
    """Register the rules that other packages offer, once."""
    register_offered(GROUP, "rule", register_rule)


@dataclass(frozen=True)
class _Found:
    """What a rule matched, and how it described it."""

    func: tirx.PrimFunc
    description: Any


@dataclass(frozen=True)
class CheckedRule(Template[_Found, Any]):
    """A rule from outside: what is wrong with it is an error that names it."""

    rule: Template[Any, Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the rule."""
        return self.rule.name

    @contextmanager
    def named(self, doing: str) -> Iterator[None]:
        """Whatever is raised inside is an error of the rule, ``doing`` something."""
        try:
            yield
        except RammerError:
            raise
        except Exception as error:
            raise InputError(
                f"{_named(self.rule)} raised {type(error).__name__} {doing}: {error}; mend or "
                "uninstall its package"
            ) from error

    def match(
        self, func: tirx.PrimFunc, constants: frozenset[int], vdevice: VDevice
    ) -> _Found | None:
        with self.named("in match"):
            found = self.rule.match(func, constants, vdevice)
        return None if found is None else _Found(func, found)

    def space(self, found: _Found) -> Sequence[Any]:
        with self.named("in space"):
            return self._listed(self.rule.space(found.description))

    def usual(self, found: _Found) -> Sequence[Any]:
        space = self.space(found)
        with self.named("in usual"):
            chosen = self._listed(self.rule.usual(found.description))
        for each in chosen:
            if each not in space:
                raise InputError(
                    f"{_named(self.rule)} takes {self.text(each)!r}, which is not among the "
                    f"{len(space)} configurations of its space; mend its package"
                )
        return chosen

    def emit(self, found: _Found, configuration: Any) -> Scheduled:
        with self.named(f"emitting {self.text(configuration)!r}"):
            made = self.rule.emit(found.description, configuration)
            problem = _problem(made, found.func)
        if problem:
            raise InputError(
                f"{_named(self.rule)} emitted {problem} for {self.text(configuration)!r}; "
                "mend its package"
            )
        return made

    def text(self, configuration: Any) -> str:
        with self.named("in text"):
            return str(self.rule.text(configuration))

    def rounding(self, configuration: Any) -> tuple[str | int, ...]:
        with self.named("in rounding"):
            return tuple(self.rule.rounding(configuration))

    def _listed(self, configurations: object) -> Sequence[Any]:
        if not isinstance(configurations, Sequence):
            found = type(configurations).__name__
            raise TypeError(f"{found!r} is no sequence of configurations")
        return configurations


def _problem(made: object, func: tirx.PrimFunc) -> str:
    """Why something cannot stand in for a function; empty if it can."""
    if not isinstance(made, Scheduled):
        return f"{type(made).__name__!r} and no Scheduled"
    packings = dict(made.packings)
    if len(made.func.params) != len(func.params):
        return f"{len(made.func.params)} parameters instead of {len(func.params)}"
    for number, (mine, given) in enumerate(zip(made.func.params, func.params, strict=True)):
        wanted = tuple(map(int, given.shape))
        if number in packings:
            wanted = packings[number].shape(wanted)
        if tuple(map(int, mine.shape)) != wanted or str(mine.dtype) != str(given.dtype):
            return f"another shape or type of parameter {number}"
    return ""


def _named(rule: Template[Any, Any]) -> str:
    return f"the rule {rule.name!r} ({home_of(rule)})"
