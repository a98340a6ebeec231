"""Numbers for people: durations, bytes, counts, lists, and the ticks of a time axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10

#: The prefix as a page spells it; a terminal gets a plain ``u``.
MICRO = "\u00b5"


def duration(seconds: float, micro: str = "u") -> str:
    """Three significant digits with a unit, e.g. ``"61.2 us"``; ``micro`` spells the prefix."""
    for scale, unit in ((1e-9, "ns"), (1e-6, f"{micro}s"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(nbytes: int) -> str:
    """Bytes with a binary unit, e.g. ``"1.5 MiB"``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    value = nbytes / 1024
    for unit in ("KiB", "MiB"):
        if value < 1024:
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def counted(number: int, noun: str) -> str:
    """A number with its noun, e.g. ``"1,920 rTasks"``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def dimensions(shape: Sequence[int | str] | None) -> str:
    """A shape as people write it."""
    if shape is None:
        return "dynamic"
    return "x".join(map(str, shape)) or "scalar"


def listed(items: Iterable[str], most: int = 8) -> str:
    """The items with commas between; of more than ``most`` the first ones and their count."""
    found = list(items)
    if len(found) > most:
        return f"{', '.join(found[:most])}, ... ({len(found)} in all)"
    return ", ".join(found) or "none"


def ticks(stop: float, most: int) -> list[float]:
    """At most ``most`` + 1 round times from 0 to ``stop``: multiples of 1, 2 or 5 times 10**n."""
    if stop <= 0:
        return [0.0]
    rough = stop / max(1, most)
    power = 10.0 ** floor(log10(rough))
    step = next((n * power for n in (1, 2, 5) if n * power >= rough * (1 - 1e-9)), 10 * power)
    return [n * step for n in range(floor(stop / step * (1 + 1e-9)) + 1)]
