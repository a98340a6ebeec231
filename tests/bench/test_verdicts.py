from __future__ import annotations

from typing import Any

from bench import verdicts
from timed_records import records, timed


def region(policy: str, predicted: float, limit: str, chosen: str | None = None) -> dict[str, Any]:
    explanation = {"predicted": predicted, "limit": limit, "needs": f"less {limit}"}
    return {
        "policy": policy,
        "explanation": explanation,
        "decision": {"chosen": chosen} if chosen else None,
    }


FACTS = {
    "regions": [
        region("sequential", 1.0, "launch", "per-op"),
        region("estf", 9.0, "work", "estf"),
        region("estf", 2.0, "waiting"),
    ]
}


def test_a_verdict_has_the_fastest_peer_the_goal_and_what_holds_the_longest_region() -> None:
    peers = timed("onnxruntime", 4.0), timed("openvino", 2.0)
    (found,) = verdicts.verdicts({"squeezenet": records(*peers, timed("auto", 1.7, facts=FACTS))})
    assert (found.model, found.peer, found.goal, found.met) == (
        "squeezenet",
        "openvino",
        0.8,
        False,
    )
    assert (found.policy, found.limit) == ("per-op, estf", "work: it takes less work")


def test_a_model_without_a_peers_time_has_no_verdict() -> None:
    assert verdicts.verdicts({"mlp": records(timed("auto", 1.0))}) == []


def test_auto_lost_only_where_noise_leaves_no_doubt() -> None:
    def plans(auto: float) -> dict[str, Any]:
        return records(timed("auto", auto), timed("sequential", 1.0), timed("per-op", 2.0))

    found = verdicts.slower_than_plain({"mlp": plans(1.5), "bert_base": plans(1.01)})
    assert [(model, base) for model, base, _ in found] == [("mlp", "sequential")]


def test_plain_plans_are_not_co_scheduled() -> None:
    plain = {"regions": [region("sequential", 1.0, "work", "sequential")]}
    models = {
        "mlp": records(timed("auto", 1.0, facts=plain)),
        "bert_base": records(timed("auto", 1.0, facts=FACTS)),
        "alexnet": records(timed("sequential", 1.0, facts=FACTS)),
    }
    assert verdicts.co_scheduled(models) == ["bert_base"]


def test_models_that_take_long_to_compile_are_listed_the_slowest_first() -> None:
    models = {
        "mlp": records(timed("auto", 1.0, set_up_s=61.0)),
        "bert_base": records(timed("auto", 1.0, set_up_s=70.0)),
        "alexnet": records(timed("auto", 1.0, set_up_s=59.0), timed("tvm", 1.0, set_up_s=99.0)),
    }
    assert verdicts.slow_to_compile(models) == [("bert_base", 70.0), ("mlp", 61.0)]


def test_a_library_without_regions_has_no_limit() -> None:
    assert verdicts.limit({"regions": []}) == verdicts.policy_of({}) == ""
