"""A console that takes names and paths literally, and shows nothing raw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from tvm_rammer.printable import printable


class PlainConsole(Console):
    """Brackets in a text are no markup; all of it is printable, whatever it is part of."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)
        self.push_render_hook(_Hook())

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, instead of ending the process."""
        raise


class _Hook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(part) for part in renderables]


@dataclass
class _Shown:
    part: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.part, options):
            text = segment.text if segment.control else printable(segment.text)
            yield Segment(text, segment.style, segment.control)
