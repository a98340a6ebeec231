"""The command line as a whole: help, usage, and how errors look."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from tvm_rammer import __version__
from tvm_rammer.cli import main
from tvm_rammer.commands.command import Command, Result
from tvm_rammer.errors import InputError, RammerError
from tvm_rammer.testing.models import get_model

COMMANDS = ("demo", "doctor", "compile", "run", "show", "explain", "tune", "records", "models")


def call(*arguments: str):
    return CliRunner().invoke(main, arguments, prog_name="tvm-rammer")


def test_help_lists_the_commands_in_the_order_of_meeting_them():
    result = call("--help")
    listed = [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line]
    assert listed[: len(COMMANDS)] == list(COMMANDS)
    assert result.exit_code == 0


def test_without_arguments_the_help_is_shown():
    assert call().stdout == call("--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_and_the_common_options(command):
    text = call(command, "--help").stdout
    assert f"Examples:\n    tvm-rammer {command}" in text
    assert "--json" in text and "--debug" in text


def test_help_fits_a_terminal():
    for command in COMMANDS:
        before_examples = call(command, "--help").stdout.split("Examples:")[0]
        assert max(map(len, before_examples.splitlines())) <= 80


def test_help_imports_neither_tvm_nor_numpy(tmp_path):
    info = tmp_path / "tvm_rammer-0.dist-info"  # as if installed: else TVM is told by hand
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tvm-rammer\nVersion: 0")
    (info / "entry_points.txt").write_text("[tvm.backends]\nrammer = tvm_rammer._autoload:register")
    code = (
        "import sys\nfrom tvm_rammer.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(str({'tvm', 'numpy', 'onnx', 'rich'} & set(sys.modules)))"
    )
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stderr == "set()\n"


def test_version():
    assert call("--version").stdout == f"tvm-rammer {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "there is no command 'nope'; see 'tvm-rammer --help'"),
        (["comple"], "there is no command 'comple' (near: 'compile'); see 'tvm-rammer --help'"),
        (["run"], "Missing argument 'MODEL|LIBRARY'; see 'tvm-rammer run --help'"),
        (
            ["compile", "m.onnx"],
            "Missing option '-o' / '--output'; see 'tvm-rammer compile --help'",
        ),
        (
            ["compile", "m.onnx", "-o", "m.so", "--shape", "x=\u00b2"],
            "Invalid value for '--shape': 'x=\u00b2' is not of the form name=1,3,224,224; "
            "see 'tvm-rammer compile --help'",
        ),
        (
            ["compile", "m.onnx", "-o", "m.so", "--shape", "x=a-1"],
            "Invalid value for '--shape': 'x=a-1' is not of the form name=1,3,224,224; "
            "see 'tvm-rammer compile --help'",
        ),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(arguments, line):
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {line}\n"


def group_of(callback) -> click.Group:
    group = type(main)("tvm-rammer", commands=None)
    command = Command("work", callback=callback)
    group.get_command = lambda ctx, name: command
    return group


def command_that_raises(error: BaseException) -> click.Group:
    def callback() -> Result:
        raise error

    return group_of(callback)


def test_lines_of_text_are_not_wrapped_and_brackets_stay():
    line = "[bold] :smile: " * 50
    group = group_of(lambda: Result({}, (line,)))
    assert CliRunner().invoke(group, ["work"]).stdout == line + "\n"


def test_what_a_command_prints_itself_is_not_in_the_document():
    def callback() -> Result:
        print("chatter")
        warnings.warn("mind\nthis", stacklevel=1)
        return Result({"a": 1}, ())

    result = CliRunner().invoke(group_of(callback), ["work", "--json"])
    assert result.stdout == '{"a": 1}\n'
    assert result.stderr == 'chatter\n{"warning": "mind this"}\n'


CLOSED = """
import os
from tvm_rammer.cli import make_streams_usable
make_streams_usable()
from tvm_rammer.commands.native_work import native_work
with native_work("working"):
    os.write(2, b"said to nobody")
"""


def test_native_work_without_standard_error():
    line = f"exec {sys.executable} -c '{CLOSED}' 2>&-"
    assert subprocess.run(line, shell=True).returncode == 0


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_characters_that_the_output_lacks_are_escaped(options):
    code = (
        "import click, sys\nfrom tvm_rammer.cli import _Group\n"
        "from tvm_rammer.commands.command import Command, Result\n"
        "told = Command('x', callback=lambda: Result({'a': 'ü'}, ('ü',)))\n"
        "_Group.get_command = lambda *_: told\n"
        "_Group('g').main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "x", *options],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == ('{"a": "\\u00fc"}\n' if options else "\\xfc\n"), done.stderr


def test_a_result_that_cannot_be_shown_is_one_line():
    command = Command("x", callback=lambda: Result({"a": object()}, ()))
    group = click.Group("g", commands=[command])
    result = CliRunner().invoke(group, ["x", "--json"])
    assert result.stderr == (
        "Error: unexpected TypeError: Object of type object is not JSON serializable; run again "
        "with --debug and report what it shows\n"
    )


def test_an_error_of_this_package_is_one_line_and_status_1():
    group = command_that_raises(RammerError("x is\nwrong; put it right"))
    result = CliRunner().invoke(group, ["work"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: x is wrong; put it right\n"


def test_an_unexpected_error_says_how_to_report_it():
    result = CliRunner().invoke(command_that_raises(KeyError("x")), ["work"])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: unexpected KeyError: 'x'; run again with --debug and report what it shows\n"
    )


def test_debug_shows_the_traceback_before_the_line():
    result = CliRunner().invoke(command_that_raises(RammerError("wrong")), ["work", "--debug"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("error: wrong\n")


def test_an_interrupt_is_no_traceback():
    result = CliRunner().invoke(command_that_raises(KeyboardInterrupt()), ["work"])
    assert result.exit_code == 130
    assert result.stderr.split() == ["error:", "interrupted"]


WILD = "a\x1b[2J\u202eb\x9b31m\x7f"
TAME = r"a\x1b[2J\u202eb\x9b31m\x7f"


def test_nothing_in_a_name_reaches_the_terminal_raw():
    from rich.table import Table
    from rich.text import Text

    table = Table.grid()
    table.add_column()
    table.add_row(WILD)

    def callback() -> Result:
        warnings.warn(WILD, stacklevel=1)
        return Result({WILD: WILD}, (WILD, Text(WILD), table))

    result = CliRunner().invoke(group_of(callback), ["work"])
    assert result.stderr == f"warning: {TAME}\n"
    assert [line.rstrip() for line in result.stdout.splitlines()] == [TAME] * 3
    shown = CliRunner().invoke(group_of(callback), ["work", "--json"]).stdout
    assert json.loads(shown) == {WILD: WILD}
    assert all(" " <= character < "\x7f" for character in shown.rstrip("\n"))


@pytest.mark.parametrize("error", [RammerError(f"{WILD}; no"), KeyError(WILD), OSError(2, WILD)])
@pytest.mark.parametrize("arguments", [[], ["--json"], ["--debug"]])
def test_nothing_in_an_error_reaches_the_terminal_raw(error, arguments):
    found = CliRunner().invoke(command_that_raises(error), ["work", *arguments]).stderr
    assert "[2J" in found
    assert not set(found) & {"\x1b", "\u202e", "\x9b", "\x7f"}


def test_nothing_in_a_wrong_call_reaches_the_terminal_raw():
    assert call(WILD).stderr == f"error: there is no command {WILD!r}; see 'tvm-rammer --help'\n"
    assert "\x1b" not in call("run", f"--{WILD}").stderr


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (
            RammerError("x: is wrong; it is 1; put it right"),
            {"error": "x: is wrong; it is 1", "kind": "RammerError", "hint": "put it right"},
        ),
        (InputError("no"), {"error": "no", "kind": "InputError", "hint": ""}),
        (
            KeyError("x"),
            {
                "error": "unexpected KeyError: 'x'",
                "kind": "UnexpectedError",
                "hint": "run again with --debug and report what it shows",
            },
        ),
        (KeyboardInterrupt(), {"error": "interrupted", "kind": "Interrupted", "hint": ""}),
    ],
)
def test_an_error_is_json_where_that_is_asked_for(error, found):
    result = CliRunner().invoke(command_that_raises(error), ["work", "--json"])
    assert result.stdout == ""
    assert json.loads(result.stderr) == found


def test_a_wrong_call_is_json_where_that_is_asked_for():
    assert json.loads(call("compile", "--json").stderr) == {
        "error": "Missing argument 'MODEL'",
        "kind": "UsageError",
        "hint": "see 'tvm-rammer compile --help'",
    }


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False), ("0", False)])
def test_errors_have_colours_unless_nobody_wants_them(monkeypatch, no_color, coloured):
    monkeypatch.setenv("NO_COLOR", no_color)

    def callback() -> Result:
        warnings.warn("mind", stacklevel=1)
        raise RammerError("wrong")

    found = CliRunner().invoke(group_of(callback), ["work"], color=True).stderr
    assert ("\x1b[" in found) == coloured


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tvm_rammer", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--clear-cache"]])
def test_output_that_cannot_be_written_is_one_line(arguments):
    with open("/dev/full", "w") as full, start(*arguments, stdout=full) as command:
        _, said = command.communicate()
    assert (command.returncode, said.decode()) == (
        1,
        "error: standard output cannot be written: No space left on device; "
        "make room on the disk, or choose another path\n",
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--clear-cache"]])
def test_output_that_nobody_reads_is_no_error(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    with start(*arguments, stdout=writing) as command:
        os.close(writing)
        _, said = command.communicate()
    assert (command.returncode, said) == (141, b"")


def test_an_error_that_nobody_reads_keeps_its_status():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tvm_rammer", "nope"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing) as process:
        os.close(writing)
        assert process.communicate() == (b"", None)
    assert process.returncode == 2


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["--version", "doctor --clear-cache", "nope"])
def test_closed_output_changes_no_status(tmp_path, closing, arguments):
    line = f"exec {sys.executable} -m tvm_rammer {arguments} {closing}"
    environment = {**os.environ, "TVM_RAMMER_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(line, shell=True, env=environment, capture_output=True)
    assert done.returncode == (2 if arguments == "nope" else 0), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_an_interrupt_ends_every_stage(tmp_path):
    """Sent after every so many milliseconds of a build: from the first import to the last write."""
    path = tmp_path / "m.onnx"
    onnx.save(get_model("inception_v1").tiny(), path)
    codes = []
    for wait in np.linspace(0.4, 8, 16):
        with start("compile", str(path), "-o", str(tmp_path / "m.so")) as command:
            try:
                command.wait(wait)
            except subprocess.TimeoutExpired:
                command.send_signal(signal.SIGINT)
            _, said = command.communicate(timeout=60)
            codes.append(command.returncode)
            assert b"Traceback" not in said
            assert command.returncode in (0, 130), said
            assert command.returncode == 0 or said.split() == [b"error:", b"interrupted"]
        assert {each.name for each in tmp_path.iterdir()} <= {"m.onnx", "m.so"}
    assert codes.count(130) >= 3
