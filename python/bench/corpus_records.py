"""What check_models.py found, by model and form, and the file that it goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from corpus.checking import Checked
from corpus.entries import Architecture, Entry, Form
from corpus.export import definition
from corpus.racing import RaceTimes

import tvm_rammer
from bench import result_file
from tvm_rammer.errors import InputError
from tvm_rammer.typed_json import read_as

_FORMAT = 1
SCRIPT = "check_models.py"


@dataclass(frozen=True)
class CorpusSetting:
    """What all records of a file have in common."""

    threads: int


@dataclass(frozen=True)
class ModelRecord:
    """A model in one form.

    Attributes
    ----------
    name, form, source, task : str
        Of the entry.
    code, model : str
        Digests of the compiler and of the model that were checked.
    checked : Checked
    race : RaceTimes or None
        None where it was not timed.
    cpu : str
        What it was checked on.
    """

    name: str
    form: Form
    source: str
    task: str
    code: str
    model: str
    checked: Checked
    race: RaceTimes | None = None
    cpu: str = ""

    @property
    def trained(self) -> bool:
        """Whether it is out of a package, which has a version; architectures are of libraries."""
        return " " in self.source

    @property
    def agrees(self) -> bool:
        """Whether it compiled, ran and gave the reference's outputs."""
        return self.checked.stage == "done"

    @property
    def compiled(self) -> bool:
        """Whether there is a library."""
        return self.checked.stage in ("run", "compare", "done")

    @property
    def ours(self) -> bool:
        """Whether the compiler was asked at all: there was a file, and a reference."""
        return self.checked.stage in ("build", "run", "compare", "done")


@dataclass
class CorpusResults:
    """Records under one setting.

    Attributes
    ----------
    setting : CorpusSetting
    machine : mapping of str to anything
        See :func:`~.machine.machine`; empty until something was checked.
    records : dict of str to ModelRecord
        By :func:`key`.
    """

    setting: CorpusSetting
    machine: Mapping[str, Any] = field(default_factory=dict)
    records: dict[str, ModelRecord] = field(default_factory=dict)

    def without_times_of_others(self, cpu: str) -> CorpusResults:
        """The same, less the times that another CPU took: one table has times of one CPU."""
        records = {
            name: record if record.cpu == cpu else replace(record, race=None)
            for name, record in self.records.items()
        }
        return replace(self, records=records)

    def save(self, path: Path) -> None:
        """Write the file."""
        head = {"format": _FORMAT, "setting": asdict(self.setting), "machine": self.machine}
        records = {key: asdict(record) for key, record in sorted(self.records.items())}
        result_file.save(path, head, "records", records)


def load_corpus(path: Path) -> CorpusResults:
    """The results in a file; InputError if it is missing or of another kind."""
    return result_file.load(path, _FORMAT, SCRIPT, _parsed)


def resume_corpus(path: Path, setting: CorpusSetting) -> CorpusResults:
    """What an earlier run found under the same setting, or nothing yet."""
    return result_file.resumed(path, load_corpus, CorpusResults(setting))


def load_notes(path: Path) -> dict[str, str]:
    """What people found out about records, by their keys; kept by hand, and none if missing."""
    if not path.exists():
        return {}
    try:
        return {str(key): str(text) for key, text in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError) as error:
        raise InputError(f"{path} is not an object of texts; correct it") from error


def key(name: str, form: Form) -> str:
    """How a record is called in the file."""
    return f"{name}/{form}"


def code_digest() -> str:
    """A digest of the compiler's sources: of all of the package but what tests it."""
    root = Path(tvm_rammer.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if "testing" not in path.relative_to(root).parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def model_digest(entry: Entry) -> str:
    """A digest of which model it is."""
    if isinstance(entry, Architecture):
        try:
            return definition(entry)
        except ModuleNotFoundError:
            return "not installed"
    text = repr([entry.package, entry.version, entry.file, entry.constants])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parsed(data: Any) -> CorpusResults:
    cpu = {"cpu": data["machine"].get("cpu", "")}
    records = {
        name: read_as(ModelRecord, {**cpu, **item}) for name, item in data["records"].items()
    }
    return CorpusResults(CorpusSetting(**data["setting"]), data["machine"], records)
