"""Ways to serve models in a process: client threads, forked children, a library loaded each second.

Each gets ready first, so that several processes can begin at the same moment; then it serves for
some seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import BinaryIO

from bench.die_with_parent import die_with_parent

from serving.served import Instance, Served, served
from serving.turn import Latencies, Turn, together

#: How often memory is looked at in a turn.
_SAMPLES = 100
_PAGE = os.sysconf("SC_PAGESIZE")


class Threads:
    """Clients in a thread each, with instances of their own, one run after the other."""

    def __init__(self, models: Sequence[Served], clients: int, seed: int) -> None:
        self._end = 0.0
        self._ready, self._go = threading.Barrier(clients + 1), threading.Event()
        self._turns = [Turn() for _ in range(clients)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(models, turn, Random(f"{seed} {number}")))
            for number, turn in enumerate(self._turns)
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._ready.wait()
        except threading.BrokenBarrierError:
            said = [message for turn in self._turns for message in turn.wrong]
            raise RuntimeError(said[0]) from None

    def serve(self, seconds: float) -> Turn:
        """Let the clients run."""
        started = time.monotonic()
        self._end = started + seconds
        self._go.set()
        resident = sampled(seconds)
        for thread in self._threads:
            thread.join()
        result = together(self._turns)
        result.seconds, result.resident = time.monotonic() - started, resident
        return result

    def _guarded(self, models: Sequence[Served], turn: Turn, rng: Random) -> None:
        try:
            self._serve(models, turn, rng)
        except Exception:
            turn.add_wrong(traceback.format_exc())
            self._ready.abort()

    def _serve(self, models: Sequence[Served], turn: Turn, rng: Random) -> None:
        instances = [(model, model.instance()) for model in models]
        for model, run in instances:
            ask(model, run, 0, Turn())
        self._ready.wait()
        self._go.wait()
        while time.monotonic() < self._end:
            model, run = rng.choice(instances)
            ask(model, run, rng.randrange(len(model.inputs)), turn)


class Children:
    """Children forked after loading, with a client thread each."""

    def __init__(self, models: Sequence[Served], clients: int, seed: int) -> None:
        self._children: list[tuple[int, BinaryIO, BinaryIO]] = []
        for number in range(clients):
            self._fork(models, seed + number)
        for _, _, answers in self._children:
            if json.loads(answers.readline()) != "ready":
                raise RuntimeError("a forked child does not get ready")

    def serve(self, seconds: float) -> Turn:
        """Let the children run."""
        for _, requests, _ in self._children:
            requests.write(b"%a\n" % seconds)
            requests.close()
        turns = [self._answer(*child) for child in self._children]
        result = together(turns)
        result.counts["children"] += len(turns)
        return result

    def _answer(self, child: int, _: BinaryIO, answers: BinaryIO) -> Turn:
        line = answers.readline()
        turn = Turn.from_json(json.loads(line)) if line else Turn()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status or not line:
            turn.add_wrong(f"a child ended with {status}")
        answers.close()
        return turn

    def _fork(self, models: Sequence[Served], seed: int) -> None:
        (asked, asks), (answered, answers) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(asks)
            _in_child(models, seed, os.fdopen(asked, "rb"), os.fdopen(answers, "wb", 0))
        os.close(asked)
        os.close(answers)
        self._children.append((child, os.fdopen(asks, "wb"), os.fdopen(answered, "rb")))


def _in_child(models: Sequence[Served], seed: int, asks: BinaryIO, answers: BinaryIO) -> None:
    status = 1
    try:
        die_with_parent()
        way = Threads(models, 1, seed)
        answers.write(b'"ready"\n')
        turn = way.serve(float(asks.readline()))
        answers.write(json.dumps(turn.to_json()).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class Reloading:
    """One client, whose library's file is replaced by the next one every second, and loaded again.

    Parameters
    ----------
    files : sequence
        Name, library, inputs and wanted outputs of models that take turns under one path.
    """

    def __init__(self, files: Sequence[tuple[str, str, list[str], list[str]]]) -> None:
        self._files = files
        self._reloaded(0, Turn(), 0.0)

    def serve(self, seconds: float) -> Turn:
        """Run, replace and load."""
        turn = Turn()
        started = time.monotonic()
        client = threading.Thread(target=self._serve, args=(turn, started + seconds))
        client.start()
        turn.resident = sampled(seconds)
        client.join()
        turn.seconds = time.monotonic() - started
        return turn

    def _serve(self, turn: Turn, end: float) -> None:
        try:
            number = 0
            while time.monotonic() < end:
                self._reloaded(number, turn, min(end, time.monotonic() + 1))
                number += 1
        except Exception:
            turn.add_wrong(traceback.format_exc())

    def _reloaded(self, number: int, turn: Turn, end: float) -> None:
        name, file, inputs, wanted = self._files[number % len(self._files)]
        current = Path(file).with_name("current.so")
        shutil.copy(file, current.with_suffix(".new"))
        os.replace(current.with_suffix(".new"), current)
        model = served(name, "rammer", str(current), inputs, wanted)
        turn.counts["loads"] += 1
        run = model.instance()
        while True:
            ask(model, run, turn.runs % len(model.inputs), turn)
            if time.monotonic() >= end:
                return


def ask(model: Served, run: Instance, number: int, turn: Turn) -> None:
    """Run once, take the time, and look at the outputs."""
    started = time.perf_counter()
    outputs = run(model.inputs[number])
    turn.latencies.setdefault(model.name, Latencies()).add(time.perf_counter() - started)
    if not model.is_right(number, outputs):
        turn.add_wrong(f"{model.name}: other bits than one thread gives, inputs {number}")


def sampled(seconds: float) -> list[int]:
    """Bytes of this process's memory, as it was in the course of so many seconds."""
    started, found = time.monotonic(), []
    for number in range(1, _SAMPLES + 1):
        time.sleep(max(0.0, started + seconds * number / _SAMPLES - time.monotonic()))
        found.append(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE)
    return found
