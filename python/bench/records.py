"""What bench_peers.py measured, by model and contender, and the file that it goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.result_file import load, resumed
from tvm_rammer.testing.timing_results import Outcome, Ratio, paired_ratio
from tvm_rammer.whole_files import write_whole

_FORMAT = 2


@dataclass(frozen=True)
class Setting:
    """What all results of a file have in common.

    Attributes
    ----------
    quick : bool
        Models at their reduced sizes.
    threads : int
    winograd : bool
        Whether our convolutions may use Winograd's algorithm.
    quantised : bool
        Models of 8 bits.
    """

    quick: bool
    threads: int
    winograd: bool = True
    quantised: bool = False


@dataclass(frozen=True)
class Record:
    """One contender on one model; those of the same session took turns with each other."""

    outcome: Outcome
    session: str

    @property
    def median_ms(self) -> float | None:
        """Median of all runs; None where there is none."""
        return self.outcome.quartiles_ms()[1] if self.good else None

    @property
    def good(self) -> bool:
        """Whether it was timed."""
        return self.outcome.status == "ok" and bool(self.outcome.blocks_ns)


#: Records by contender.
Records = Mapping[str, Record]


def ratio(records: Records, name: str, other: str) -> Ratio | None:
    """Time of a contender over another's.

    Paired by rounds where they met in a session; of medians, without an interval, where they did
    not; None where one has no time.
    """
    mine, theirs = records.get(name), records.get(other)
    if mine is None or theirs is None or not (mine.good and theirs.good):
        return None
    if mine.session == theirs.session:
        return paired_ratio(mine.outcome, theirs.outcome)
    value = mine.outcome.quartiles_ms()[1] / theirs.outcome.quartiles_ms()[1]
    return Ratio(value, value, value)


@dataclass
class ResultFile:
    """Results under one setting.

    Attributes
    ----------
    setting : Setting
    machine : mapping of str to anything
        See :func:`~.machine.machine`; empty until something was measured.
    models : dict of str to dict of str to Record
    """

    setting: Setting
    machine: Mapping[str, Any]
    models: dict[str, dict[str, Record]]

    def save(self, path: Path) -> None:
        """Write the file in one step: an interrupt leaves the old one whole."""
        lines = [
            json.dumps({"format": _FORMAT, "setting": asdict(self.setting)})[1:-1],
            f'"machine": {json.dumps(self.machine)}',
            f'"models": {{\n{_models_text(self.models)}\n}}',
        ]
        write_whole(path, ("{" + ",\n".join(lines) + "}\n").encode())


def load_results(path: Path) -> ResultFile:
    """The results in a file.

    Raises
    ------
    InputError
        The file is missing or of another kind.
    """
    return load(path, _FORMAT, "bench_peers.py", _parsed)


def resume(path: Path | None, setting: Setting) -> ResultFile:
    """What an earlier run measured under the same setting, or nothing yet."""
    return resumed(path, load_results, ResultFile(setting, {}, {}))


def _parsed(data: Any) -> ResultFile:
    models = {
        model: {
            name: Record(Outcome.from_json(item["outcome"]), item["session"])
            for name, item in records.items()
        }
        for model, records in data["models"].items()
    }
    return ResultFile(Setting(**data["setting"]), data["machine"], models)


def _models_text(models: Mapping[str, Records]) -> str:
    """A line for each record: short enough to keep, and to see in a diff what changed."""
    return ",\n".join(
        f"{json.dumps(model)}: {{\n"
        + ",\n".join(
            f'{json.dumps(name)}: {{"session": {json.dumps(record.session)}, '
            f'"outcome": {json.dumps(record.outcome.to_json())}}}'
            for name, record in records.items()
        )
        + "}"
        for model, records in models.items()
    )
