from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bench import overview, pages
from bench.findings import Findings, FindingsSetting
from bench.pages import Results
from bench.readme_part import (
    BEGIN,
    END,
    _Row,
    readme_part,
    replace_part,
    telling,
)
from bench.records import Record, ResultFile, Setting
from bench.study import PlanRoofline
from small_studies import small_scaling, small_study
from timed_records import records, timed

from tvm_rammer.errors import InputError
from tvm_rammer.testing.timing_results import Outcome

MACHINE: dict[str, Any] = {
    "cpu": "Some CPU",
    "cpus": 2,
    "system": "Linux 6",
    "date": "2026-11-21T17:00:00+00:00",
    "python": "3.11.7",
    "versions": {"apache-tvm": "0.27.0", "torch": "not installed"},
    "commands": {"python python/bench_peers.py --json r.json": "2026-11-21T17:00:00+00:00"},
}
PLACE = "Some CPU, 2 CPUs, Linux 6, 2026-11-21; Python 3.11.7, apache-tvm 0.27.0."
FACTS = {
    "regions": [
        {
            "policy": "estf",
            "decision": None,
            "explanation": {"predicted": 1.0, "limit": "work", "needs": "faster | kernels"},
        }
    ]
}
MODELS = {
    "mlp": records(
        timed("onnxruntime", 2.0),
        timed("auto", 3.0, facts=FACTS, set_up_s=75.0),
        timed("sequential", 1.0),
    ),
    "bert_base": records(
        timed("onnxruntime", 4.0),
        Record(Outcome("openvino", "failed", "set-up: no memory"), "one"),
        timed("auto", 1.0),
    ),
}
PEERS = ResultFile(Setting(False, 2), MACHINE, MODELS)
FAILED = {"vgg19": "its process ended"}
ABLATIONS = Findings(FindingsSetting(False), MACHINE, {"mlp": small_study()}, FAILED)
SCALING = Findings(FindingsSetting(False, (2, 64)), MACHINE, {"bert_base": small_scaling(2)})
ALL = Results(PEERS, ResultFile(Setting(False, 2, False), MACHINE, MODELS), ABLATIONS, SCALING)


def test_the_overview_says_how_far_the_goals_are_met() -> None:
    text = overview.overview(ALL)
    assert f"Float32, random weights, full sizes, 2 threads. {PLACE}" in text
    assert (
        "- Geometric mean of the time over that of the fastest peer of each model: 0.61x "
        "(goal: 0.65x).\n"
        "- Not slower than the fastest peer on 1 of 2 models; own goals met on 1.\n"
        "- auto chose a co-scheduled plan for 1 of 2 models: mlp.\n"
        "- Compiling takes longer than 60 s for mlp (75 s).\n"
        "- Not measured: lstm_8x8x256, "
    ) in text
    assert "python python/bench_peers.py --json r.json  # 2026-11-21\n" in text


def test_the_overview_says_what_is_lost_and_why() -> None:
    text = overview.overview(ALL)
    assert (
        "| mlp | onnxruntime | estf | work: it takes faster \\| kernels | 1.50x | 1.50 to 1.50 "
        "| 1.00x |"
    ) in text
    assert "| mlp | sequential | estf | 3.00x | 3.00 to 3.00 |" in text
    assert "| bert_base | onnxruntime |" not in text
    assert (
        "### mlp: operators that lose most to their roofline\n\n"
        "| operators | rule | limit | ms | waiting | roofline, ms | ratio |\n"
        "| --- | --- | --- | --: | --: | --: | --: |\n"
        "| conv x 2 | convolution | compute | 3 | 0.12 | 2 | 1.50x |"
    ) in text


def test_the_overview_shows_what_classes_of_models_gain() -> None:
    text = overview.overview(ALL)
    assert "## What co-scheduling gains, and what is left" in text
    assert "| bert_base | - | - | - | 4 | 4 | 2 | work | 100% |" in text
    assert "[more vEUs, simulated](scaling.md)" in text


def test_where_nothing_is_lost_the_overview_says_so() -> None:
    good = {"mlp": records(timed("onnxruntime", 2.0), timed("auto", 1.0), timed("per-op", 1.5))}
    text = overview.overview(Results(ResultFile(Setting(True, 2), MACHINE, good)))
    assert "No model misses its goal." in text
    assert "On no model is auto slower than the better of the two by more than 2%" in text
    assert "reduced sizes" in text
    assert "ablations.md" not in text


def test_without_a_peers_time_there_is_nothing_to_compare() -> None:
    models = {"mlp": records(timed("auto", 1.0))}
    assert overview.summary(models) == ["No model has a time of a peer to compare with."]


def test_the_page_of_peers_has_everybody_and_who_failed() -> None:
    text = pages.peers_page(ALL)
    assert (
        "| model | onnxruntime | openvino | auto | sequential | to the best peer | goal |" in text
    )
    assert "| bert_base | 4 | failed | 1 | - | 0.25x | 1.00x |" in text
    assert "- openvino failed: set-up: no memory (bert_base)" in text
    assert "## Medians without Winograd's algorithm, ms" in text
    assert "### mlp" in text
    assert "without Winograd" not in pages.peers_page(Results(PEERS))


def test_a_contender_of_another_environment_tells_its_versions() -> None:
    facts = {"versions": {"torch": "2.13.0"}}
    models = {"mlp": records(timed("pytorch", 2.0, facts=facts), timed("auto", 1.0))}
    text = pages.peers_page(Results(ResultFile(Setting(True, 2), MACHINE, models)))
    assert "- `pytorch`: PyTorch through onnx2torch, eager (torch 2.13.0)\n" in text


def test_the_page_of_ablations_has_every_answer_and_who_failed() -> None:
    text = pages.ablations_page(ABLATIONS)
    for title in ("Policies", "Winograd", "Utilisation"):
        assert f"\n## {title}\n" in text
    assert "- vgg19: its process ended" in text


def test_the_page_of_more_veus_has_every_answer() -> None:
    text = pages.scaling_page(SCALING)
    for title in ("More vEUs", "What is left on the fewest vEUs", "Fast and efficient rKernels"):
        assert f"\n## {title}\n" in text
    assert "](scaling.svg)" in text
    assert "## Failed" not in text


def test_the_overview_compares_sequential_plans_with_their_rooflines() -> None:
    text = overview.overview(ALL)
    assert "](ablations.md): at most 1.15x on 0 of 1 models." in text
    assert "| 2 | 1.25 | 1.60x (1.50 to 1.75) | 1.40x | 1.25x (1.00 to 1.50) |" in text
    assert "## The sequential plan" not in overview.overview(Results(PEERS))


def test_kernels_of_a_model_far_from_its_roofline_are_named() -> None:
    good = {"mlp": records(timed("onnxruntime", 2.0), timed("auto", 1.0))}
    peers = ResultFile(Setting(False, 2), MACHINE, good)
    heading = "### mlp: operators that lose most to their roofline"
    assert heading in overview.overview(Results(peers, None, ABLATIONS))
    near = replace(
        small_study(), roofline=PlanRoofline(1.25, (1.12, 1.1, 1.2), (1.0, 1.0, 1.0), 1.0)
    )
    found = Findings(FindingsSetting(False), MACHINE, {"mlp": near})
    text = overview.overview(Results(peers, None, found))
    assert heading not in text
    assert "at most 1.15x on 1 of 1 models." in text


def test_the_part_of_the_readme_is_replaced_and_nothing_else() -> None:
    part = readme_part(ALL, "docs/results")
    assert "| model | what it is | onnxruntime | openvino | auto | to the best peer |" in part
    assert "| mlp | own, random weights | 2 |" in part
    assert "](docs/results/peers.svg)" in part
    before = f"# Title\n\n{BEGIN}\nold\n{END}\n\nmore\n"
    after = replace_part(before, part)
    assert after == f"# Title\n\n{BEGIN}\n{part}\n{END}\n\nmore\n"
    assert replace_part(after, part) == after


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(InputError) as error:
        replace_part("# Title\n", "part")
    assert str(error.value) == f"the README has no lines {BEGIN} and {END}; add them"


def test_the_readme_shows_the_best_the_worst_and_what_lies_between() -> None:
    rows = [_Row(float(k), (str(k),)) for k in (7, 3, 1, 9, 5, 2, 8, 4, 6)]
    assert [row.ratio for row in telling(rows)] == [1, 3, 5, 7, 9]
    assert [row.ratio for row in telling(rows[:3])] == [1, 3, 7]
