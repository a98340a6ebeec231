"""What all commands share: --json and --debug, errors of one line, and the place that prints."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer._environment import import_problem
from tvm_rammer.errors import RammerError
from tvm_rammer.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Columns of text that no terminal shows.
_PLAIN_WIDTH = 100


@dataclass(frozen=True)
class Result:
    """What a command found.

    Attributes
    ----------
    document : mapping
        For programs: what --json prints.
    text : tuple of renderable
        For people.
    exit_code : int
    """

    document: Mapping[str, Any]
    text: tuple[RenderableType, ...]
    exit_code: int = 0


class Command(click.Command):
    """A command whose function returns a :class:`Result`.

    Nothing but the result reaches standard output; whatever is raised becomes one line.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document."),
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
        ]

    def invoke(self, ctx: click.Context) -> int:
        as_json, debug = ctx.params.pop("as_json"), ctx.params.pop("debug")
        with _failures_told(debug), _short_warnings(debug, as_json), redirect_stdout(sys.stderr):
            result: Result = super().invoke(ctx)
        with _failures_told(debug, OSError):  # of standard output: whoever called says so
            if as_json:
                indent = 2 if sys.stdout.isatty() else None
                text = json.dumps(result.document, indent=indent, allow_nan=False)
                click.echo(text.replace("\x7f", "\\u007f"))
            else:
                _print(result)
        return result.exit_code


@contextmanager
def _failures_told(debug: bool, *passed: type[Exception]) -> Iterator[None]:
    """Make a :class:`Failure` of whatever is raised, except for some."""
    left: tuple[type[Exception], ...] = (click.ClickException, click.Abort, *passed)
    try:
        yield
    except left:
        raise
    except Exception as error:
        if debug:
            click.echo(printable(traceback.format_exc()), err=True)
        raise _failure(error) from error


class Failure(click.ClickException):
    """What a command failed of, of the kind that Python calls it."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def tell_failure(message: str, kind: str, as_json: bool) -> None:
    """Say on standard error what went wrong: a line for people, or one JSON object.

    What to do about it is behind the last semicolon of a message.
    """
    line = printable(" ".join(message.split()))
    if as_json:
        problem, _, hint = line.rpartition("; ")
        found = {"error": problem or hint, "kind": kind, "hint": hint if problem else ""}
        say(json.dumps(found))
    else:
        say(f"{_label('error', 'red')} {line}")


def say(line: str) -> None:
    """Write a line to standard error, if anybody listens."""
    with suppress(OSError):
        click.echo(line, err=True)


def _label(word: str, colour: str) -> str:
    """A word before a message, in colour where that is wanted (https://no-color.org)."""
    return f"{word}:" if os.environ.get("NO_COLOR") else click.style(f"{word}:", colour, bold=True)


def plain_console(**options: Any) -> Console:
    """A console for what a command found; making the first takes a while."""
    from tvm_rammer.commands.console import PlainConsole

    return PlainConsole(**options)


def _print(result: Result) -> None:
    console = plain_console()
    if not console.is_terminal:
        console = plain_console(width=_PLAIN_WIDTH)
    for part in result.text:
        # Lines of our own are left to the terminal, which reflows them, and to grep.
        console.print(part, soft_wrap=isinstance(part, str))


def _failure(error: Exception) -> Failure:
    if isinstance(error, RammerError):
        return Failure(str(error), type(error).__name__)
    if (problem := import_problem(error)) is not None:
        return Failure(problem, "ImportError")
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(
        f"unexpected {cause}; run again with --debug and report what it shows", "UnexpectedError"
    )


@contextmanager
def _short_warnings(debug: bool, as_json: bool) -> Iterator[None]:
    """Warnings as one line, without the place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = printable(" ".join(str(message).split()))
        say(json.dumps({"warning": line}) if as_json else f"{_label('warning', 'yellow')} {line}")

    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = show
        yield
