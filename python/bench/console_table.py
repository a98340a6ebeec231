"""Tables of texts, and progress, as the scripts print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from bench.markdown import QuestionTable

T = TypeVar("T")


def console_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first column is of names, all others are of numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def console_answers(tables: Iterable[QuestionTable[T]], found: T) -> Iterator[Table]:
    """The questions that have an answer."""
    for each in tables:
        if rows := each.rows(found):
            yield console_table(each.title, each.columns(found), rows)


def counted_progress() -> Progress:
    """What is done, of how much, and for how long, on standard error."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
