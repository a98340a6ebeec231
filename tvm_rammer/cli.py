"""The command line: ``tvm-rammer`` and ``python -m tvm_rammer``.

A command's module is imported when its help or the command itself is asked for, and TVM when the
command works: ``tvm-rammer --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import click

from tvm_rammer._version import __version__
from tvm_rammer._without_torch import import_tvm_without_torch
from tvm_rammer.commands.command import tell_failure
from tvm_rammer.interrupts import interrupts
from tvm_rammer.whole_files import advice_for

#: Exit statuses as shells have them: 128 and the signal that ends other programs.
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + signal.SIGPIPE
#: In the order in which a new user meets them; each is the ``command`` of a module in ``commands``.
_COMMANDS = ("demo", "doctor", "compile", "run", "show", "explain", "tune", "records", "models")

_EXAMPLES = """\b
Examples:
  tvm-rammer demo                                  what it does, in a minute and a half
  tvm-rammer doctor                                is this machine set up well?
  tvm-rammer compile model.onnx -o model.so        from a model to a library
  tvm-rammer run model.so --input x.npy            run it
  tvm-rammer show model.so --html plan.html        look at its schedule
  tvm-rammer explain model.onnx                    why it is as it is
  tvm-rammer tune model.onnx -o records --trials 500
                                                   let TVM's tuner choose the tiles
  tvm-rammer models inception_v3 -o model.onnx     a network to try it on

Every command takes --json; then an error is one JSON object on standard error, with
"error", "kind" and "hint", and standard output stays empty. Exit status: 0 done, 1 failed,
2 called in a wrong way, 130 interrupted, 141 nobody reads the output.
"""


class _NobodyReads(Exception):
    """A BrokenPipeError, of which every version of click makes something else."""


@contextmanager
def _closed_pipe_told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _NobodyReads from error


class _Group(click.Group):
    """Finds the commands, and reports every failure as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"tvm_rammer.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, _COMMANDS, n=1)
            hint = f" (near: {near[0]!r})" if near else ""
            ctx.fail(f"there is no command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _closed_pipe_told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe_told():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        make_streams_usable()
        given = list(map(str, sys.argv[1:] if args is None else args))
        # Only a program of PyTorch's needs it.
        if not any(each.endswith(".pt2") for each in given):
            import_tvm_without_torch()
        as_json = "--json" in given

        def call() -> Any:
            # The base class of this one; click ends nothing itself.
            return super(_Group, self).main(given, prog_name, complete_var, False, **extra)

        # A second one ends the process at once.
        with interrupts(partial(os._exit, INTERRUPTED)) as interrupted:
            code = _ended(call, interrupted, as_json)
            if interrupted() or code == INTERRUPTED:
                tell_failure("interrupted", "Interrupted", as_json)
                code = INTERRUPTED
        if code:
            quiet_end()
        sys.exit(code)


def _ended(call: Callable[[], Any], interrupted: Callable[[], bool], as_json: bool) -> int:
    """The exit status of a call; what went wrong has been told."""
    try:
        code = call()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, _NobodyReads):
        return CLOSED_PIPE
    except click.ClickException as error:
        if not interrupted():
            tell_failure(_message(error), getattr(error, "kind", "UsageError"), as_json)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        cause = error.strerror or error
        # What writes to standard output names no file.
        what = "standard output cannot be written" if error.filename is None else error.filename
        text = f"{what}: {cause}; {advice_for(error)}"
        tell_failure(text, "OSError", as_json)
        return 1


def _message(error: click.ClickException) -> str:
    """What was wrong, and for a wrong call where to read on."""
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message.rstrip('.')}; see '{error.ctx.command_path} --help'"
    return message


@click.group(
    cls=_Group,
    epilog=_EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="tvm-rammer %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Compile neural networks with Apache TVM so that independent operators run together."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def make_streams_usable() -> None:
    """Let output that is closed take what is written, and any output take every character."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                # Else the next file that is opened would get what is written there.
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def quiet_end() -> None:
    """Let nothing be said after an error: what could not be written, and what TVM leaves behind."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        # Where it is no file, as in a test, there is nothing to be said.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(null, stream.fileno())
    os.close(null)
