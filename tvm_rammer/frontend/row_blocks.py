"""Rows of groups in blocks of one number of rows, each with rows of one group.

How many rows a group has is known only when the program runs, how many blocks there may be before.
"""

from __future__ import annotations

#: Rows of a block at most: sums of more do not stay in registers.
_MOST_ROWS = 8


def rows_of_block(rows: int, groups: int) -> int:
    """A power of two, half of a group's average at most: what fills up its last block is waste."""
    size = 1
    while 2 * size <= min(_MOST_ROWS, rows // groups // 2):
        size *= 2
    return size


def most_blocks(rows: int, groups: int, size: int) -> int:
    """How many blocks of a size there may be at most, however rows fall into groups."""
    return (rows + min(rows, groups) * (size - 1)) // size
