"""What is written to standard error during native work is passed on, less what says nothing."""

from __future__ import annotations

import os
from contextlib import suppress

from tvm import relax

from tvm_rammer.commands.native_work import native_work


def leave_blocks() -> None:
    """As importers do when they refuse a model."""
    builder = relax.BlockBuilder()
    with suppress(ValueError), builder.function("main", []):
        raise ValueError


def test_noise_is_left_out_and_names_are_printable(capfd):
    with native_work("working"):
        os.write(2, b"[12:00:00] /a/executable.cc:1: Warning: Scope Saving:\n")
        os.write(2, b"a \x1b[2Jname\n")
        leave_blocks()
    assert capfd.readouterr().err == "a \\x1b[2Jname\n"
