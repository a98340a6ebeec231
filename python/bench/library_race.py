"""Two libraries of one model, timed against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corpus.stages import STAGES, search_path

from tvm_rammer.errors import RammerError
from tvm_rammer.testing.fair_timing import Settings, TimedContender, time_contenders
from tvm_rammer.testing.timing_results import Ratio, paired_ratio


@dataclass(frozen=True)
class LibraryRace:
    """Median milliseconds of the first and the second library, and the second's ratio to it."""

    ms: tuple[float, float]
    ratio: Ratio


def race_libraries(
    libraries: Mapping[str, Path],
    inputs: Path,
    threads: int,
    seconds: float,
    paths: Mapping[str, Path] | None = None,
) -> LibraryRace:
    """Time two libraries in a process each, taking turns.

    Parameters
    ----------
    libraries : mapping of str to Path
        Two files, by what they are called.
    inputs : Path
        A ``.npz`` of the inputs by name.
    threads : int
        Of TVM's pool.
    seconds : float
        For both together.
    paths : mapping of str to Path, optional
        The checkout that loads each library, where it is not this one.

    Raises
    ------
    RammerError
        If one of them does not run, or both disagree.
    """
    contenders = [
        TimedContender(
            name,
            f"{STAGES}:load_library",
            {"library": str(library), "inputs": str(inputs)},
            {
                "TVM_NUM_THREADS": str(threads),
                **search_path(paths[name].resolve() if paths else None),
            },
        )
        for name, library in libraries.items()
    ]
    settings = Settings(9, 20, 0.2, 0.02, session_s=seconds, tolerance=1e-3)
    first, second = time_contenders(contenders, settings, None)
    for outcome in (first, second):
        if outcome.status != "ok":
            raise RammerError(f"{outcome.name}: {outcome.status}: {outcome.note}")
    ms = (first.quartiles_ms()[1], second.quartiles_ms()[1])
    return LibraryRace(ms, paired_ratio(second, first))
