"""What auto's plans gain over the plain ones, class by class, and how much is left to gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench import peers
from bench.markdown import table
from bench.records import Records
from bench.scaling import BOUND, BOUNDS, Makespans, Scaling, speed_up
from bench.verdicts import PLAIN

_COLUMNS = (
    "model",
    "auto's plan, measured",
    "gain, measured",
    "95 %",
    "sequential, ms",
    "auto, ms",
    "bound, ms",
    "set by",
    "left at most",
)


@dataclass(frozen=True)
class ModelClass:
    """Models whose operators are independent of each other in a like way.

    Attributes
    ----------
    name : str
    goal : float
        By how much auto should be faster than the better of ``sequential`` and ``per-op``.
    models : tuple of str
    """

    name: str
    goal: float
    models: tuple[str, ...]


CLASSES = (
    ModelClass(
        "Recurrent networks",
        0.30,
        (
            "lstm_8x8x256",
            "lstm_10x100x256",
            "lstm_10x100x256_b4",
            "lstm_10x100x256_b16",
            "gru_8x8x256",
            "seq2seq",
            "deepspeech2",
        ),
    ),
    ModelClass(
        "Towers, experts and separate heads",
        0.20,
        ("recommender", "mixture_of_experts", "bert_base", "transformer_decoder"),
    ),
    ModelClass(
        "Branchy convolutional networks",
        0.03,
        (
            "inception_v1",
            "inception_v2",
            "inception_v3",
            "nasnet_cifar",
            "nasnet_mobile",
            "nasnet_large",
            "randwire",
            "resnext29_16x64d",
            "resnext29_16x64d_paper",
            "resnext101_64x4d",
            "squeezenet",
            "squeezenet_bypass",
        ),
    ),
)


def class_gains(
    models: peers.Models, scalings: Mapping[str, Scaling], threads: int, chosen: Mapping[str, str]
) -> list[str]:
    """Parts of a page: a heading, how to read it, and a table with a verdict for each class.

    Parameters
    ----------
    models : mapping of str to Records
        Measured.
    scalings : mapping of str to Scaling
        Simulated.
    threads : int
        The number of vEUs that counts.
    chosen : mapping of str to str
        Whose plan auto took, as measured.
    """
    parts = []
    for each in CLASSES:
        least = {
            name: scalings[name].makespans[str(threads)]
            for name in each.models
            if name in scalings and str(threads) in scalings[name].makespans
        }
        rows = [
            [*_measured(name, models, chosen), *_left(least.get(name))]
            for name in each.models
            if name in models or name in least
        ]
        if rows:
            verdict = _verdict(each, models, least, chosen)
            parts += [f"### {each.name}", verdict, table(_COLUMNS, rows, left=2)]
    if not parts:
        return []
    return ["## What co-scheduling gains, and what is left", _text(threads), *parts]


def gain(records: Records) -> tuple[float, float, float] | None:
    """How much faster auto is than the better of the plain plans: the estimate and its interval."""
    found = peers.to_own_baseline(records)
    if found is None:
        return None
    value, low, high = (1 / ratio - 1 for ratio in (found[1].value, found[1].high, found[1].low))
    return value, low, high


def _text(threads: int) -> str:
    return (
        "Gains are of `auto` over the faster of `sequential` and `per-op` with the same kernels, "
        f"measured: time over time, less one. Beside them the simulation on {threads} vEUs with "
        "measured costs of the kernels, and the bound that no plan of these kernels can beat: the "
        "critical path with every operator across all vEUs, all work over the vEUs, or the bytes "
        "over the bandwidth of memory, whichever is largest. The last column is what a plan at the "
        "bound would gain over the sequential one: where that is small, none can win."
    )


def _measured(name: str, models: peers.Models, chosen: Mapping[str, str]) -> list[str]:
    found = gain(models[name]) if name in models else None
    if found is None:
        return [name, "-", "-", "-"]
    value, low, high = found
    return [name, chosen.get(name) or "-", f"{value:+.0%}", f"{low:+.0%} to {high:+.0%}"]


def _left(makespans: Makespans | None) -> list[str]:
    if makespans is None or not makespans[BOUND]:
        return ["-"] * 5
    return [
        *(f"{1e3 * makespans[name]:.3g}" for name in ("sequential", "auto", BOUND)),
        max(BOUNDS, key=lambda name: makespans[name]),
        f"{speed_up(makespans, BOUND) - 1:.0%}",
    ]


def _verdict(
    each: ModelClass,
    models: peers.Models,
    least: Mapping[str, Makespans],
    chosen: Mapping[str, str],
) -> str:
    gains = [made[0] for name in each.models if name in models and (made := gain(models[name]))]
    text = f"Goal: {each.goal:.0%}."
    if gains:
        mean = _mean_gain(gains)
        text += f" Measured, geometric mean of {len(gains)}: {mean:+.1%}"
        text += ", which meets it." if mean >= each.goal else "."
        mine = [chosen[name] for name in each.models if chosen.get(name)]
        beside = sum(not set(policies.split(", ")) <= PLAIN for policies in mine)
        text += f" auto chose a co-scheduled plan for {beside} of {len(mine)}."
    if least:
        left = _mean_gain([speed_up(found, BOUND) - 1 for found in least.values()])
        text += f" The bounds leave {left:.1%} over the sequential plans at most"
        text += ": no plan of these kernels can reach the goal." if left < each.goal else "."
    return text


def _mean_gain(gains: Sequence[float]) -> float:
    return geometric_mean([1 + one for one in gains]) - 1
