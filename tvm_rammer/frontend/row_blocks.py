"""Rows of groups in blocks of one number of rows, each with rows of one group.

How many rows a group has is known only when the program runs, how many blocks there may be before.
Where only the run tells how many rows there are in all, blocks are of some rows.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_rammer.frontend.sizes import as_size, quotient

#: Rows of a block at most: sums of more do not stay in registers.
_MOST_ROWS = 8
#: Rows of a block for any number of rows: a compromise between one token and a prompt.
_SOME_ROWS = 4


def rows_of_block(rows: Any, groups: int) -> int:
    """A power of two, half of a group's average at most: what fills up its last block is waste."""
    if not isinstance(rows, int):
        return _SOME_ROWS
    size = 1
    while 2 * size <= min(_MOST_ROWS, rows // groups // 2):
        size *= 2
    return size


def most_blocks(rows: Any, groups: int, size: int) -> Any:
    """How many blocks of a size there may be at most, however rows fall into groups."""
    if isinstance(rows, int):
        return (rows + min(rows, groups) * (size - 1)) // size
    return quotient(rows + tirx.min(rows, as_size(groups)) * (size - 1), size)
