"""What all commands share: --json and --debug, errors of one line, and the place that prints."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tvm_rammer._environment import import_problem
from tvm_rammer.errors import RammerError

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
        try:
            with _short_warnings(debug), redirect_stdout(sys.stderr):
                result: Result = super().invoke(ctx)
        except (click.ClickException, click.Abort):
            raise
        except Exception as error:
            if debug:
                traceback.print_exc()
            raise click.ClickException(_message(error)) from error
        if as_json:
            indent = 2 if sys.stdout.isatty() else None
            click.echo(json.dumps(result.document, indent=indent, allow_nan=False))
        else:
            _print(result)
        return result.exit_code


def plain_console(**options: Any) -> Console:
    """A console that takes names and paths literally: brackets in them are no markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, **options)


def _print(result: Result) -> None:
    console = plain_console()
    if not console.is_terminal:
        console = plain_console(width=_PLAIN_WIDTH)
    for part in result.text:
        # Lines of our own are left to the terminal, which reflows them, and to grep.
        console.print(part, soft_wrap=isinstance(part, str))


def _message(error: Exception) -> str:
    if isinstance(error, RammerError):
        return str(error)
    if (problem := import_problem(error)) is not None:
        return problem
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"unexpected {cause}; run again with --debug and report what it shows"


@contextmanager
def _short_warnings(debug: bool) -> Iterator[None]:
    """Warnings as one line, without the place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        line = " ".join(str(message).split())
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {line}", err=True)

    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = show
        yield
