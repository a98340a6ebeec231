#!/usr/bin/env python3
"""Give tvm_rammer edited models, plans, libraries, caches and commands, and random networks.

    python python/fuzz.py --minutes 30 --json fuzz.json
    python python/fuzz.py --case plans 17

Every case follows from its kind and its seed. A find is a crash, a hang, a traceback, a result that
differs from ONNX Runtime's or from stock TVM's, a plan on which the verifier and the definitions
disagree, or damage that is accepted; it is saved with the command that repeats it. Exit status 1 if
there are any.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tvm_rammer.printable import printable

KINDS = (
    *("models", "layers", "emulated", "networks"),
    *("graphs", "plans", "libraries", "caches", "commands"),
)
FINDS = ("crash", "hang", "traceback", "wrong")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Find:
    """A case that went wrong: how, what was said, and how to see it again."""

    kind: str
    seed: int
    verdict: str
    said: str
    command: str


class Worker:
    """A process that works through the seeds of a kind; a new one after it died."""

    #: What it runs.
    module = str(HERE / "fuzzing" / "worker.py")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._process: subprocess.Popen[str] | None = None

    def run(self, seed: int, seconds: float) -> dict[str, str]:
        """What became of a seed."""
        process = self._started()
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        answer = self._answer(seconds)
        if answer is not None:
            return answer
        hangs = process.poll() is None
        if hangs:
            process.kill()
        code = process.wait()
        self._process = None
        return {"verdict": "hang" if hangs else "crash", "said": f"exit status {code}"}

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            search_path = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
            self._process = subprocess.Popen(
                [sys.executable, self.module, self.kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))},
            )
            if self._answer(300) is None:
                raise click.ClickException(f"the worker for {self.kind} does not start")
        return self._process

    def _answer(self, seconds: float) -> dict[str, str] | None:
        """The next line; None if none comes in time, or the process is gone."""
        assert self._process is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            return None
        return json.loads(line)


@click.command()
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option("--cases", type=click.IntRange(1), help="So many at most.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="The first.")
@click.option("--only", type=click.Choice(KINDS), multiple=True, help="Of these kinds; repeatable.")
@click.option("--case", type=(click.Choice(KINDS), int), help="One case: its kind and its seed.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds until a case hangs.")
@click.option("--finds", default=Path("finds"), show_default=True, type=click.Path(path_type=Path))
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    minutes: float,
    cases: int | None,
    seed: int,
    only: tuple[str, ...],
    case: tuple[str, int] | None,
    limit: float,
    finds: Path,
    json_path: Path | None,
) -> None:
    """Fuzz for some minutes."""
    console = Console()
    if case is not None:
        worker = Worker(case[0])
        answer = worker.run(case[1], limit)
        worker.stop()
        console.print(printable(answer["verdict"] + "\n" + answer.get("said", "")), markup=False)
        sys.exit(answer["verdict"] in FINDS)
    verdicts, found = _fuzz(console, minutes, cases, seed, only or KINDS, limit, finds)
    console.print(_table(verdicts))
    for find in found:
        last = printable(find.said.strip().splitlines()[-1] if find.said.strip() else "")
        console.print(f"[red]{find.verdict}[/] {escape(last[:300])}\n  {find.command}")
    if json_path is not None:
        document = {
            "minutes": minutes,
            "seed": seed,
            "verdicts": {kind: dict(counts) for kind, counts in verdicts.items()},
            "finds": [asdict(find) for find in found],
        }
        json_path.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(bool(found))


def _fuzz(
    console: Console,
    minutes: float,
    most: int | None,
    seed: int,
    kinds: tuple[str, ...],
    limit: float,
    folder: Path,
) -> tuple[dict[str, Counter[str]], list[Find]]:
    """Take the kinds in turns, each for as long as the others."""
    verdicts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    spent, seeds = dict.fromkeys(kinds, 0.0), dict.fromkeys(kinds, seed)
    workers, found = {kind: Worker(kind) for kind in kinds}, list[Find]()
    end = time.monotonic() + 60 * minutes
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("starting", total=60 * minutes)
        cases = 0
        while (now := time.monotonic()) < end and (most is None or cases < most):
            kind = min(kinds, key=lambda each: spent[each])
            answer = workers[kind].run(seeds[kind], limit)
            verdicts[kind][answer["verdict"]] += 1
            if answer["verdict"] in FINDS:
                found.append(_saved(kind, seeds[kind], answer, folder))
            seeds[kind] += 1
            spent[kind] += time.monotonic() - now
            cases += 1
            text = f"{cases} cases, {len(found)} finds, {kind}"
            progress.update(bar, completed=60 * minutes - (end - now), description=text)
    for worker in workers.values():
        worker.stop()
    return verdicts, found


def _saved(kind: str, seed: int, answer: dict[str, str], folder: Path) -> Find:
    command = f"python python/fuzz.py --case {kind} {seed}"
    find = Find(kind, seed, answer["verdict"], answer.get("said", ""), command)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}-{seed}.json").write_text(json.dumps(asdict(find), indent=1) + "\n")
    return find


def _table(verdicts: dict[str, Counter[str]]) -> Table:
    table = Table("kind", "cases", "verdicts", "finds", box=None, header_style="bold")
    for kind, counts in verdicts.items():
        harmless = ", ".join(
            f"{count} {verdict}" for verdict, count in counts.most_common() if verdict not in FINDS
        )
        finds = sum(counts[verdict] for verdict in FINDS)
        table.add_row(kind, str(sum(counts.values())), harmless, str(finds))
    return table


if __name__ == "__main__":
    main()
