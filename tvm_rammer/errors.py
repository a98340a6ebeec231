"""The errors that tvm_rammer raises: one line that says what was wrong, where, and what to do."""

from __future__ import annotations

from tvm_rammer.printable import printable


class RammerError(Exception):
    """Base class of every error that this package raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ModelError(RammerError):
    """A model cannot be read, imported or compiled."""


class InputError(RammerError):
    """An input tensor, an option or an argument does not fit."""


class PlanError(RammerError):
    """An rProgram is malformed, or could not be proved safe."""


class LibraryError(RammerError):
    """A compiled library cannot be written, read or run here."""


class TuningError(RammerError):
    """Tuning cannot start or go on, or a choice of it cannot be made."""


class DeviceError(RammerError):
    """A device or target is unknown, or cannot be used from this process."""


def last_line(error: BaseException) -> str:
    """What an error of TVM's says, without the trace before it."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
