"""What tuning gained by the number of its trials, as a small static SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tvm_rammer.units import ticks

_WIDTH, _HEIGHT = 640, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 32, 36


def gain_svg(gains: Sequence[tuple[int, float]], title: str) -> str:
    """A line that steps up where a plan got faster.

    Parameters
    ----------
    gains : sequence of (int, float)
        Trials and how many times as fast the plan was after them, by growing trials.
    title : str

    Returns
    -------
    str
        An ``<svg>`` element that needs nothing else.
    """
    most = max((trials for trials, _ in gains), default=0) or 1
    low = min([1.0, *(gain for _, gain in gains)])
    high = max([1.05, *(gain for _, gain in gains)])

    def x(trials: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * trials / most

    def y(gain: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - gain) / (high - low)

    points, now = [(x(0), y(1.0))], 1.0
    for trials, gain in gains:
        points += [(x(trials), y(now)), (x(trials), y(gain))]
        now = gain
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui,sans-serif" font-size="12" '
        f'fill="#59636e" role="img"><title>{escape(title)}</title>',
        f'<text x="{_LEFT}" y="20">{escape(title)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">trials</text>',
    ]
    for rise in ticks(high - low, 4):
        at = y(low + rise)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#8c959f66"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{low + rise:.2f}x</text>'
        )
    for mark in ticks(most, 6):
        at = x(mark)
        label = f'<text x="{at:.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{mark:.0f}</text>'
        parts.append(label)
    parts.append(f'<polyline points="{path}" fill="none" stroke="#0969da" stroke-width="2"/>')
    return "".join([*parts, "</svg>\n"])
