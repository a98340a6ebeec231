"""What was found about models under one setting, and the file that a script goes on from."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.console import Console
from rich.progress import track

from bench import result_file
from bench.die_with_parent import die_with_parent
from bench.machine import machine
from tvm_rammer.commands.files import require_writable
from tvm_rammer.errors import InputError
from tvm_rammer.testing.models import MODELS, get_model
from tvm_rammer.typed_json import read_as

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_FORMAT = 2

T = TypeVar("T", bound="DataclassInstance")


def chosen_models(text: str) -> list[str]:
    """The models of the zoo that a text names, separated by commas; all if it names none.

    Raises
    ------
    ModelError
        For an unknown name.
    """
    named = (name.strip() for name in text.split(","))
    return [get_model(name).name for name in named if name] or list(MODELS)


def numbers_of_veus(text: str, example: str) -> tuple[int, ...]:
    """The whole numbers of the option ``--veus``; an InputError shows the example."""
    parts = text.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--veus {text!r} is no list of positive whole numbers, such as {example}")
    return tuple(map(int, parts))


@dataclass(frozen=True)
class FindingsSetting:
    """What all findings of a file have in common.

    Attributes
    ----------
    quick : bool
        Whether models have the reduced sizes of the tests.
    veus : tuple of int
        The numbers of vEUs simulated.
    described : str
        The machine that they are simulated of, if it is not this one.
    trials : int
        Of tuning.
    """

    quick: bool
    veus: tuple[int, ...] = ()
    described: str = ""
    trials: int = 0


@dataclass
class Findings(Generic[T]):
    """Findings of one kind under one setting.

    Attributes
    ----------
    setting : FindingsSetting
    machine : mapping of str to anything
        See :func:`~.machine.machine`; empty until something was found.
    found : dict of str to T
        By model.
    failed : dict of str to str
        Why a model has none.
    """

    setting: FindingsSetting
    machine: Mapping[str, Any] = field(default_factory=dict)
    found: dict[str, T] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def find(self, script: str, model: str, function: Callable[..., T], *arguments: Any) -> None:
        """Find out about a model in a process of its own: a crash takes nothing else along."""
        self.failed.pop(model, None)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, initializer=die_with_parent) as pool:
            future = pool.submit(function, model, *arguments)
            try:
                self.found[model] = future.result()
            except BrokenProcessPool:
                self.failed[model] = "its process ended"
            except Exception as error:
                self.failed[model] = f"{type(error).__name__}: {error}"
        self.machine = machine(script, self.machine)

    def find_all(
        self,
        script: str,
        models: Iterable[str],
        path: Path | None,
        doing: str,
        function: Callable[..., T],
        *arguments: Any,
    ) -> None:
        """Find out about the models of which nothing was found; the file is saved after each."""
        if path:
            require_writable(path)
        left = [name for name in models if name not in self.found]
        for name in track(left, doing, console=Console(stderr=True), transient=True):
            self.find(script, name, function, *arguments)
            if path:
                self.save(path)

    def of(self, models: Iterable[str]) -> dict[str, T]:
        """What was found about some models."""
        return {name: self.found[name] for name in models if name in self.found}

    def print_failed(self, console: Console, models: Iterable[str]) -> None:
        """Say of which of some models nothing was found, and why."""
        for name in models:
            if name in self.failed:
                console.print(f"{name} failed: {self.failed[name]}", style="red", markup=False)

    def failures(self) -> list[str]:
        """That as the last parts of a page, if there are any."""
        lines = [f"- {model}: {why}" for model, why in self.failed.items()]
        return ["## Failed", "\n".join(lines)] if lines else []

    def save(self, path: Path) -> None:
        """Write the file."""
        data = {
            "format": _FORMAT,
            "setting": asdict(self.setting),
            "machine": self.machine,
            "failed": self.failed,
        }
        found = {model: asdict(item) for model, item in self.found.items()}
        result_file.save(path, data, "found", found)


@dataclass(frozen=True)
class FindingsFile(Generic[T]):
    """A kind of file: the script that makes it, and the type of a finding."""

    script: str
    kind: type[T]

    def load(self, path: Path) -> Findings[T]:
        """The findings in a file.

        Raises
        ------
        InputError
            The file is missing or of another kind.
        """
        return result_file.load(path, _FORMAT, self.script, self._parsed)

    def resume(self, path: Path | None, setting: FindingsSetting) -> Findings[T]:
        """What an earlier run found under the same setting, or nothing yet."""
        return result_file.resumed(path, self.load, Findings[T](setting))

    def _parsed(self, data: Any) -> Findings[T]:
        setting = FindingsSetting(**{**data["setting"], "veus": tuple(data["setting"]["veus"])})
        found = {model: read_as(self.kind, item) for model, item in data["found"].items()}
        return Findings(setting, data["machine"], found, data["failed"])
