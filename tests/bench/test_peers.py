from __future__ import annotations

from bench import peers
from bench.contenders import CANDIDATES
from bench.records import Record
from timed_records import records, timed

from tvm_rammer.testing.timing_results import Outcome

MISSING = Record(Outcome("openvino", "missing", "No module named 'openvino'"), "one")
FAILED = Record(Outcome("tvm", "failed", "set-up: out of memory"), "one")
ALL = records(timed("onnxruntime", 2.0), MISSING, FAILED, timed("wavefront", 1.0))


def test_who_failed_or_is_missing_is_shown_with_a_note() -> None:
    names = ["onnxruntime", "openvino", "tvm", "wavefront"]
    assert peers.rows({"mlp": ALL}, names) == [["mlp", "2", "-", "failed", "1", "0.50x", "1.00x"]]
    assert peers.notes({"mlp": ALL}, names) == [
        "openvino missing: No module named 'openvino' (mlp)",
        "tvm failed: set-up: out of memory (mlp)",
    ]


def test_auto_is_what_counts_even_where_another_plan_is_faster() -> None:
    found = {**ALL, **records(timed("auto", 3.0), timed("openvino", 4.0))}
    assert peers.our_name(found) == "auto"
    assert peers.best_peer(found) == "onnxruntime"
    made = peers.to_best_peer(found)
    assert made and made.value == 1.5


def test_the_mean_over_models_is_geometric() -> None:
    models = {
        "squeezenet": records(timed("onnxruntime", 2.0), timed("auto", 1.0)),
        "mlp": records(timed("onnxruntime", 1.0), timed("auto", 2.0)),
        "bert_base": records(timed("onnxruntime", 1.0)),
    }
    assert peers.mean_ratio(models) == 1.0
    assert peers.rows(models, ["auto"])[-1] == ["geometric mean", "", "1.00x", "0.65x"]
    assert peers.rows(models, ["auto"])[2] == ["bert_base", "-", "-", "1.00x"]


def test_auto_is_compared_with_the_faster_of_the_plain_plans() -> None:
    found = records(timed("auto", 1.0), timed("sequential", 4.0), timed("per-op", 2.0))
    made = peers.to_own_baseline(found)
    assert made and (made[0], made[1].value) == ("per-op", 0.5)
    assert peers.to_own_baseline(records(timed("auto", 1.0))) is None


def test_times_taken_beside_other_work_are_named() -> None:
    models = {"mlp": records(timed("auto", 1.0, disturbance=0.5)), "bert_base": ALL}
    assert peers.notes(models, ["auto"])[-1] == (
        "other processes kept more than 0.1 CPUs busy while these were timed: mlp"
    )


def test_details_have_a_row_for_everybody() -> None:
    rows = peers.detail_rows(ALL)
    assert [row[0] for row in rows] == list(ALL)
    assert {len(row) for row in rows} == {len(peers.DETAIL_COLUMNS)}
    assert rows[-1][:6] == ["wavefront", "1", "1 to 1", "3", "0.50x", "0.50 to 0.50"]


def test_every_policy_can_be_timed() -> None:
    assert {"auto", "sequential", "wavefront", "estf", "ios", "locality"} <= set(CANDIDATES)
