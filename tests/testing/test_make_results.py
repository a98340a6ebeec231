from __future__ import annotations

from pathlib import Path

import make_results
import pytest
from bench.corpus_records import CorpusResults, CorpusSetting, ModelRecord
from bench.findings import Findings, FindingsSetting
from bench.kernel_bench import CaseResult
from bench.kernel_page import KernelResults
from bench.records import Record, ResultFile, Setting
from bench.scaling import BOUNDS, Scaling
from bench.study import BARRIERS, PlanResult, PlanRoofline, Study
from click.testing import CliRunner
from corpus.checking import Checked
from corpus.difference import Difference
from corpus.racing import RaceTimes

from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.schedule import POLICIES
from tvm_rammer.testing.timing_results import Outcome, Ratio

HALF = Ratio(0.5, 0.4, 0.6)
ROOT = Path(__file__).parents[2]
MACHINE = {
    "cpu": "Some CPU",
    "cpus": 2,
    "system": "Linux 6",
    "date": "2026-11-21T17:00:00+00:00",
    "python": "3.11.7",
    "versions": {},
    "commands": {"python python/bench_peers.py": "2026-11-21T17:00:00+00:00"},
}


def store_peers(folder: Path) -> None:
    outcomes = [
        Outcome(name, "ok", blocks_ns=((nanoseconds,),) * 3)
        for name, nanoseconds in (("onnxruntime", 2000), ("auto", 1000))
    ]
    records = {outcome.name: Record(outcome, "one") for outcome in outcomes}
    ResultFile(Setting(False, 2), MACHINE, {"mlp": records}).save(folder / "peers.json")


def store_ablations(folder: Path) -> None:
    plan = PlanResult(1.0, (1.0, 0.9, 1.1), 1.0, 2, 1, 0.5, 0.5)
    plans = dict.fromkeys(("auto", *POLICIES, BARRIERS), plan)
    roofline = PlanRoofline(0.8, (1.25, 1.2, 1.3), (1.1, 1.0, 1.2), 1.2)
    study = Study(2, ("estf",), plans, 1.0, 0.1, None, roofline, ())
    Findings(FindingsSetting(False), MACHINE, {"mlp": study}).save(folder / "ablations.json")


def store_scaling(folder: Path) -> None:
    makespans = dict.fromkeys(("auto", *POLICIES, "bound", *BOUNDS), 1.0)
    scaling = Scaling(3, 0, {"2": makespans, "4": makespans}, {})
    found = Findings(FindingsSetting(False, (2, 4)), MACHINE, {"mlp": scaling})
    found.save(folder / "scaling.json")


def store_kernels(folder: Path) -> None:
    rules = (("convolution",), ("7 x 2 vectors of 16",), (8,))
    case = CaseResult("dense", "64", "GFLOP/s", *rules, 1e-3, 0.1, 100.0, 0.9, 1e-7, 0.1, 0.2)
    ceilings = Ceilings(1.1e11, 2e11, 1e11, 5e10, 2e10)
    KernelResults("llvm", "a core", ceilings, MACHINE, (case,)).save(folder / "kernels.json")


def store_models(folder: Path) -> None:
    race = RaceTimes({"onnxruntime": 2.0, "openvino": 4.0, "auto": 1.0}, "onnxruntime", HALF)
    slow = RaceTimes({"onnxruntime": 1.0, "auto": 2.0}, "onnxruntime", Ratio(2.0, 1.9, 2.1))
    checked = Checked("done", "", Difference(1e-6, 1e-6, 1e-6), {"build_s": 3.5})
    wrong = Checked("compare", "output 0 is off by 1")
    missing = Checked("fetch", "npm is not installed")
    found = (("fast", checked, race), ("slow", checked, slow), ("wrong", wrong, None))
    results = CorpusResults(CorpusSetting(2), MACHINE)
    for name, result, times in (*found, ("missing", missing, None)):
        results.records[f"{name}/onnx"] = ModelRecord(
            name, "onnx", "package 1.0", "testing", "code", "model", result, times
        )
    results.save(folder / "models.json")
    (folder / "models_notes.json").write_text('{"slow/onnx": "a Scan of one element"}')


def test_the_page_of_models_counts_what_was_asked_and_says_why(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store_peers(tmp_path)
    store_models(tmp_path)
    result = CliRunner().invoke(make_results.main, ["--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "models.md").read_text()
    assert "| onnx | 3 | 3 | 2 | 66.7 % |" in page
    assert "**1.00x** over 2 trained models; 1 of them above 1.05x" in page
    assert "- slow (onnx), 2.00x: a Scan of one element" in page
    assert "- wrong (onnx): compare: output 0 is off by 1" in page
    assert "- missing (onnx): fetch: npm is not installed" in page
    row = (
        "| fast | onnx | package 1.0 | testing | 3.5 | 1e-06 | 1e-06 | 1e-06 | 2 | 4 | 1 | 0.50x |"
    )
    assert row in page
    assert "[the models that people have](models.md)" in (tmp_path / "README.md").read_text()


def test_pages_and_plots_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store_peers(tmp_path)
    store_ablations(tmp_path)
    store_scaling(tmp_path)
    store_kernels(tmp_path)
    readme = tmp_path / "TOP.md"
    readme.write_text("<!-- results: begin -->\n<!-- results: end -->\n")
    arguments = ["--folder", str(tmp_path), "--readme", str(readme)]
    texts = ["README.md", "peers.md", "ablations.md", "scaling.md", "kernels.md"]
    names = [*texts, "peers.svg", "policies.svg", "scaling.svg"]
    made = []
    for _ in range(2):
        result = CliRunner().invoke(make_results.main, arguments)
        assert result.exit_code == 0, result.output
        made.append([(tmp_path / name).read_text() for name in (*names, "TOP.md")])
    assert made[0] == made[1]
    assert result.output.splitlines() == [f"wrote {tmp_path / n}" for n in (*names, "TOP.md")]
    assert "goal met" in made[0][5]


def test_only_the_comparison_with_peers_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store_peers(tmp_path)
    result = CliRunner().invoke(make_results.main, ["--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "peers.json",
        "peers.md",
        "peers.svg",
    ]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(make_results.main, ["--folder", str(tmp_path)])
    path = tmp_path / "peers.json"
    assert result.output == f"Error: {path} cannot be read: No such file or directory\n"
