"""What the fuzzer calls a find: anything but the right answer or a refusal with a reason."""

from __future__ import annotations

from tvm_rammer.errors import RammerError


class Find(Exception):
    """An answer that is wrong, or a refusal that helps nobody."""


def check_refusal(error: RammerError) -> str:
    """The verdict on a refusal: one line that can be shown."""
    text = str(error)
    if not text or "\n" in text or not text.isprintable():
        raise Find(f"a poor error: {text!r}")
    return "refused"
