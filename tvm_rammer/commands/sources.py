"""The options of compiling, and the way from what a user names to a library."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tvm_rammer.commands.plan_file import read_plan
from tvm_rammer.errors import InputError

if TYPE_CHECKING:
    from tvm_rammer.runtime.description import LibraryDescription
    from tvm_rammer.runtime.library import Library
    from tvm_rammer.runtime.report import Report

F = TypeVar("F", bound=Callable[..., Any])
Shape = tuple[str, tuple[int | str, ...]]
Number = bool | int | float
Constant = tuple[str, Number | list[Number]]


class _ShapeType(click.ParamType):
    name = "NAME=N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shape:
        if isinstance(value, tuple):
            return value
        name, _, text = value.rpartition("=")
        sizes = [size.strip() for size in text.split(",")]
        if not name or not all(size.isdecimal() or size.isidentifier() for size in sizes):
            self.fail(f"{value!r} is not of the form name=1,3,224,224", param, ctx)
        return name, tuple(int(size) if size.isdecimal() else size for size in sizes)


class _ConstantType(click.ParamType):
    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Constant:
        if isinstance(value, tuple):
            return value
        name, _, text = value.rpartition("=")
        numbers = [_number(part.strip()) for part in text.split(",")]
        known = [number for number in numbers if number is not None]
        if not name or len(known) < len(numbers):
            self.fail(f"{value!r} is not of the form sr=16000 or size=480,640", param, ctx)
        return name, known if "," in text else known[0]


class _StateType(click.ParamType):
    name = "INPUT=OUTPUT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        given, _, left = value.partition("=")
        if not given or not left:
            self.fail(f"{value!r} is not of the form state=next_state", param, ctx)
        return given, left


def _number(text: str) -> Number | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return None


class _PolicyOption(click.Option):
    """Its help names the policies there are, which takes time to find out."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from tvm_rammer.schedule import policies

        known = "; ".join(f"{policy.name}: {policy.help}" for policy in policies().values())
        self.help = f"auto (default): the best of all; {known}."
        return super().get_help_record(ctx)


#: Options that are given once for each input, by the parameters that they arrive as.
REPEATED = {"shapes": "shape", "constants": "constant", "states": "state"}

_OPTIONS = {
    "policy": click.option("--policy", cls=_PolicyOption, metavar="NAME"),
    "num_veus": click.option(
        "--num-veus", type=int, metavar="N", help="vEUs to plan for; the usable cores if not given."
    ),
    "form": click.option(
        "--form",
        metavar="NAME",
        help="program (default): one launch for a region; wavefront: one launch for each "
        "wavefront; per-op: no plan, one launch for each operator.",
    ),
    "target": click.option(
        "--target", metavar="TARGET", help="A TVM target, as JSON or a name; this machine if not."
    ),
    "backend": click.option(
        "--backend",
        metavar="NAME",
        help="The back end that serves the target if not given; interpret: plans run step by step, "
        "slowly, in this process alone.",
    ),
    "shapes": click.option(
        "--shape",
        "shapes",
        type=_ShapeType(),
        multiple=True,
        help="Shape of an input with symbolic dimensions, such as ids=1,16, or ids=1,n if each run "
        "decides what n is (repeatable; what is given more than once for an input are shapes that "
        "the library can be run with, one after the other).",
    ),
    "constants": click.option(
        "--constant",
        "constants",
        type=_ConstantType(),
        multiple=True,
        help="Value of an input, a number or numbers with commas between, that is fixed when "
        "compiling (repeatable).",
    ),
    "states": click.option(
        "--state",
        "states",
        type=_StateType(),
        multiple=True,
        help="An input that is, in each run, what an output was after the run before; at first "
        "zeros (repeatable).",
    ),
    "oversubscribe": click.option(
        "--oversubscribe",
        is_flag=True,
        default=None,
        help="Allow more vEUs than hardware threads: correct, but slow.",
    ),
    "winograd_tolerance": click.option(
        "--winograd-tolerance",
        type=float,
        metavar="X",
        help="Error, relative to its outputs, that a convolution may gain by Winograd's algorithm; "
        "0 for none.",
    ),
    "round_data": click.option(
        "--round-data",
        is_flag=True,
        default=None,
        help="Where weights have 8 bits, round what many rows multiply to 8 bits too: faster, but "
        "each product is off by a hundredth or two.",
    ),
    "wait_limit": click.option(
        "--wait-limit",
        type=float,
        metavar="S",
        help="Seconds after which a run gives up waiting for a core; 0 waits for ever.",
    ),
    "database": click.option(
        "--database",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Records of tvm-rammer tune: operators are computed as the fastest of them say.",
    ),
    "max_arena_bytes": click.option(
        "--max-arena-bytes",
        type=int,
        metavar="N",
        help="Most memory for intermediate results; less runs together where they need more.",
    ),
}


def build_options(function: F) -> F:
    """Add the options of compiling; they arrive as keyword arguments, None where not given."""
    return shared_options(*_OPTIONS)(function)


def shared_options(*names: str) -> Callable[[F], F]:
    """Add some of the options of compiling, by the parameters that they arrive as."""

    def add(function: F) -> F:
        for name in reversed(names):
            function = _OPTIONS[name](function)
        return function

    return add


def require_model(model: Path) -> None:
    """Raise an InputError for what is no model file, where it can be told what it is."""
    if model.suffix == ".so":
        raise InputError(f"{model}: a library is compiled already; give the model instead")
    if os.path.exists(model):  # of a name that is too long, who reads it says so
        if read_plan(model) is not None:
            raise InputError(f"{model}: a plan holds no model to compile; give the model instead")
        return
    from tvm_rammer.testing.models import MODELS

    if (name := model.stem) in MODELS:
        raise InputError(
            f"{model}: no such file; `tvm-rammer models {name} -o {name}.onnx` writes that network"
        )


def build_library(model: Path, **options: Any) -> Library:
    """Compile a model under the options that were given."""
    require_model(model)
    from tvm_rammer.commands.native_work import native_work

    with native_work(f"compiling {model.name}"):
        from tvm_rammer.runtime.build import build

        return build(model, **given_options(options))


def open_library(source: Path, **options: Any) -> Library:
    """Load a library, or compile a model.

    Raises
    ------
    RammerError
        When it cannot be read or compiled, or options are given for what is compiled already.
    """
    if source.suffix != ".so":
        return build_library(source, **options)
    _refuse_options(source, options)
    from tvm_rammer.commands.native_work import native_work

    with native_work(f"loading {source.name}"):
        from tvm_rammer.runtime.loading import load

        return load(source)


def open_described(
    source: Path, **options: Any
) -> tuple[Library | None, LibraryDescription, Report]:
    """A library, its description and its report; of a plan in a file the latter two alone."""
    if (plan := read_plan(source)) is None:
        library = open_library(source, **options)
        return library, library.description, library.report
    _refuse_options(source, options)
    from tvm_rammer.runtime.report import make_report

    return None, plan, make_report(plan)


def _refuse_options(source: Path, options: dict[str, Any]) -> None:
    """Raise an InputError if options are given for what is compiled already."""
    if given := _given(options):
        name = next(iter(given))
        option = REPEATED.get(name, name).replace("_", "-")
        raise InputError(
            f"{source}: is compiled already, --{option} cannot change it; give the model instead"
        )


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; shapes, constants and states by the names of their inputs.

    Shapes are a list of mappings if there are several. Of a database its records.
    """
    given = _given(options)
    for name, option in REPEATED.items():
        if name in given:
            collect = _several if name == "shapes" else partial(_distinct, option)
            given[name] = collect(given[name])
    if "database" in given:
        from tvm_rammer.tuning.database import Database

        given["database"] = Database(given["database"])
    return given


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value != ()}


def _several(pairs: tuple[Shape, ...]) -> Any:
    """Shapes by name; a list of such if an input has several. One that has one has it in all."""
    found: dict[str, list[tuple[int | str, ...]]] = {}
    for name, shape in pairs:
        found.setdefault(name, []).append(shape)
    count = max(map(len, found.values()))
    for name, shapes in found.items():
        if len(shapes) not in (1, count):
            raise InputError(
                f"--shape gives input {name!r} {len(shapes)} shapes, and another input {count}: "
                "give each input one for all, or one for each"
            )
    several = [
        {name: shapes[min(number, len(shapes) - 1)] for name, shapes in found.items()}
        for number in range(count)
    ]
    return several if count > 1 else several[0]


def _distinct(option: str, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"--{option} gives input {twice!r} twice; give each input once")
    return named
