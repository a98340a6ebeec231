"""Text from files as a terminal may show it: nothing in it moves the cursor or turns words around.

Names in a model, a plan or a library can be anything. Whatever goes to a terminal goes through
:func:`printable`.
"""

from __future__ import annotations

import re

#: Control characters besides the ends of lines and tabs, marks of direction, halves of pairs.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with every character that would not be seen written as an escape, ``\\x1b``."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
