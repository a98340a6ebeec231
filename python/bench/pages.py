"""The pages in docs/results behind the first one, written from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench import machine, peers
from bench.ablation_tables import TABLES
from bench.choices import Choices
from bench.contenders import CANDIDATES
from bench.corpus_records import CorpusResults
from bench.findings import Findings
from bench.gpu_page import GpuResults
from bench.kernel_page import KernelResults
from bench.many_cores import ManyCores
from bench.markdown import answers, table, whole_page
from bench.proofs import Proof
from bench.records import ResultFile
from bench.scaling import Scaling
from bench.scaling_before import before_columns, before_rows
from bench.scaling_tables import TABLES as SCALING_TABLES
from bench.study import Study
from bench.tuning_study import TuningStudy

_BESIDE = (
    "Plans by the checkout in which kernels had no choice of tilings yet (b35b9a3), and by a later "
    "one: how many times faster the later auto is than the earlier sequential plan, how many times "
    "faster a plan of the later kernels could be, and the later auto beside the earlier one. Each "
    "checkout measured its own kernels, in turns with the other; what kernels alone have become "
    "faster, or one measured better than the other, is what the fewest vEUs show."
)


@dataclass(frozen=True)
class Results:
    """Everything that was measured; what is None was not.

    Attributes
    ----------
    peers, direct : ResultFile
        Against peers: with Winograd's algorithm, and without.
    ablations : Findings of Study
    scaling : Findings of Scaling
        More vEUs, simulated.
    proofs : tuple of Proof
        Checks that ran for long.
    kernels : tuple of KernelResults
        Single operators on one core, for each target.
    corpus : CorpusResults
        The models that people have.
    notes : mapping of str to str
        What people found out about those, by their keys.
    choices : Findings of Choices
        Operators that have a choice of tilings.
    tuning : Findings of TuningStudy
    beside : pair of Findings of Scaling
        By an earlier checkout, and by a later one on the same machine and day.
    gpu : GpuResults
    cores : ManyCores
    """

    peers: ResultFile
    direct: ResultFile | None = None
    ablations: Findings[Study] | None = None
    scaling: Findings[Scaling] | None = None
    proofs: tuple[Proof, ...] = ()
    kernels: tuple[KernelResults, ...] = ()
    corpus: CorpusResults | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    choices: Findings[Choices] | None = None
    tuning: Findings[TuningStudy] | None = None
    beside: tuple[Findings[Scaling], Findings[Scaling]] | None = None
    gpu: GpuResults | None = None
    cores: ManyCores | None = None


def contenders_of(found: ResultFile) -> list[str]:
    """Contenders that took part anywhere, in the order in which they are shown."""
    seen = {name for records in found.models.values() for name in records}
    return [name for name in CANDIDATES if name in seen]


def peers_page(results: Results) -> str:
    """Every contender on every model."""
    found = results.peers
    names = contenders_of(found)
    described = "\n".join(
        f"- `{name}`: {CANDIDATES[name].description}{_versions(found, name)}" for name in names
    )
    parts = [
        "# Every contender on every model",
        setting_text(found),
        described,
        "## Medians, ms",
        table(peers.columns(names), peers.rows(found.models, names)),
        *_notes(found, names),
    ]
    if results.direct:
        names = contenders_of(results.direct)
        parts += [
            "## Medians without Winograd's algorithm, ms",
            "Ours alone; the peers choose their own algorithms. " + setting_text(results.direct),
            table(peers.columns(names), peers.rows(results.direct.models, names)),
            *_notes(results.direct, names),
        ]
    parts.append("## Details")
    parts.append(
        "Quartiles are of all runs; the ratio and its 95 % interval are paired by rounds. Set-up "
        "is loading or compiling; auto's includes measuring kernels and plans of a model never "
        "seen before, which the others of ours then know. MB are peaks of resident memory, during "
        "set-up and afterwards. The error is relative to the outputs that most agree with. Other "
        "load: CPUs that other processes kept busy."
    )
    for model, records in found.models.items():
        parts += [f"### {model}", table(peers.DETAIL_COLUMNS, peers.detail_rows(records))]
    return whole_page(parts)


def ablations_page(found: Findings[Study]) -> str:
    """What single decisions are worth."""
    parts = [
        "# What single decisions are worth",
        "Plans of the same compiled kernels take turns in one process. "
        + machine.sentence(found.machine),
        *machine.typed(found.machine),
        "![Time of every policy over that of the sequential plan](policies.svg)",
    ]
    return whole_page([*parts, *answers(TABLES, found.found), *found.failures()])


def scaling_page(
    found: Findings[Scaling],
    beside: tuple[Findings[Scaling], Findings[Scaling]] | None = None,
    cores: ManyCores | None = None,
) -> str:
    """What the plans would be worth on more vEUs, also beside those of an earlier checkout, and
    what was measured on as many cores.
    """
    parts = [
        "# More vEUs, simulated",
        "Plans of the same kernels for devices with more vEUs than this machine has, with the "
        "kernels' costs as measured here, one memory and one last-level cache. "
        + machine.sentence(found.machine),
        *machine.typed(found.machine),
        "![Simulated speed-up of auto over sequential by number of vEUs](scaling.svg)",
    ]
    parts += answers(SCALING_TABLES, found.found)
    if beside:
        before, after = beside
        rows = before_rows(before.found, after.found)
        text = f"{_BESIDE} {machine.sentence(after.machine)}"
        parts += ["## Beside an earlier checkout", text, table(before_columns(before.found), rows)]
    parts += cores.parts() if cores else []
    return whole_page([*parts, *found.failures()])


def setting_text(found: ResultFile) -> str:
    """What was measured, where, and with which versions."""
    sizes = "reduced sizes" if found.setting.quick else "full sizes"
    return (
        f"Float32, random weights, {sizes}, {found.setting.threads} threads. "
        f"{machine.sentence(found.machine)}"
    )


def _notes(found: ResultFile, names: Sequence[str]) -> list[str]:
    notes = peers.notes(found.models, names)
    return ["\n".join(f"- {note}" for note in notes)] if notes else []


def _versions(found: ResultFile, name: str) -> str:
    """What a contender that lives in another environment says about that."""
    told = {
        f"{package} {version}"
        for records in found.models.values()
        if name in records
        for package, version in records[name].outcome.facts.get("versions", {}).items()
    }
    return f" ({', '.join(sorted(told))})" if told else ""
