"""Markdown tables, and pages; questions whose answers are tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class QuestionTable(Generic[T]):
    """A question and how the answer is made of what was found.

    Attributes
    ----------
    title, text : str
        What it is about; how to read it.
    columns : callable
        Headings, given what was found.
    rows : callable
        No row where nothing has an answer.
    """

    title: str
    text: str
    columns: Callable[[T], Sequence[str]]
    rows: Callable[[T], list[list[str]]]


def fixed(*names: str) -> Callable[[object], Sequence[str]]:
    """Columns that are the same whatever was found."""
    return lambda found: names


def answers(tables: Iterable[QuestionTable[T]], found: T) -> list[str]:
    """Parts of a page: of each question that has an answer the title, how to read it, the table."""
    return [
        part
        for each in tables
        if (rows := each.rows(found))
        for part in (f"## {each.title}", each.text, table(each.columns(found), rows))
    ]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns hold numbers."""
    rule = ["---"] * left + ["--:"] * (len(columns) - left)
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (columns, rule, *rows))


def whole_page(parts: Sequence[str]) -> str:
    """A page of the parts that have a text."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    """A bar would end the cell, a line break the row."""
    return " ".join(text.split()).replace("|", "\\|")
