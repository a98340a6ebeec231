"""What tuning gained is a line that steps up."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tvm_rammer.view.gain_svg import gain_svg


def points(text: str) -> list[tuple[float, float]]:
    (path,) = re.findall(r'points="([^"]*)"', text)
    return [tuple(map(float, pair.split(","))) for pair in path.split()]


def test_a_gain_is_a_step():
    text = gain_svg([(2, 1.0), (10, 1.2), (40, 1.2)], "a < b")
    assert ElementTree.fromstring(text)[0].text == "a < b"
    line = points(text)
    assert [y for _, y in line] == [204.0, 204.0, 204.0, 204.0, 32.0, 32.0, 32.0]
    assert line[-1][0] == 624.0


def test_without_trials():
    assert points(gain_svg([], "nothing")) == [(48.0, 204.0)]
