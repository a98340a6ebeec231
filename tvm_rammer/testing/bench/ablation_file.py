"""Studies by model, and the file that ablations.py goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tvm_rammer.testing.bench.result_file import load, resumed, write_whole
from tvm_rammer.testing.bench.study import Study

_FORMAT = 1


@dataclass(frozen=True)
class AblationSetting:
    """What all studies of a file have in common: sizes, and the numbers of vEUs simulated."""

    quick: bool
    veus: tuple[int, ...]


@dataclass
class Ablations:
    """Studies under one setting.

    Attributes
    ----------
    setting : AblationSetting
    machine : mapping of str to anything
        See :func:`~.machine.machine`; empty until something was measured.
    studies : dict of str to Study
        By model.
    failed : dict of str to str
        Why a model has none.
    """

    setting: AblationSetting
    machine: Mapping[str, Any] = field(default_factory=dict)
    studies: dict[str, Study] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file in one step: an interrupt leaves the old one whole."""
        data = {
            "format": _FORMAT,
            "setting": asdict(self.setting),
            "machine": self.machine,
            "failed": self.failed,
        }
        studies = ",\n".join(
            f"{json.dumps(model)}: {json.dumps(asdict(found))}"
            for model, found in self.studies.items()
        )
        write_whole(path, f'{json.dumps(data)[:-1]},\n"studies": {{\n{studies}\n}}}}\n')


def load_ablations(path: Path) -> Ablations:
    """The studies in a file.

    Raises
    ------
    InputError
        The file is missing or of another kind.
    """
    return load(path, _FORMAT, "ablations.py", _parsed)


def resume_ablations(path: Path | None, setting: AblationSetting) -> Ablations:
    """What an earlier run found under the same setting, or nothing yet."""
    return resumed(path, load_ablations, Ablations(setting))


def _parsed(data: Any) -> Ablations:
    given = data["setting"]
    return Ablations(
        AblationSetting(given["quick"], tuple(given["veus"])),
        data["machine"],
        {model: Study.from_json(item) for model, item in data["studies"].items()},
        data["failed"],
    )
