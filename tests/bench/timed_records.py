"""Results to make tables of: times that are as given."""

from __future__ import annotations

from typing import Any

from bench.records import Record

from tvm_rammer.testing.timing_results import Outcome


def timed(name: str, milliseconds: float, session: str = "one", **more: Any) -> Record:
    blocks = ((round(milliseconds * 1e6),),) * 3
    return Record(Outcome(name, "ok", blocks_ns=blocks, **more), session)


def records(*found: Record) -> dict[str, Record]:
    return {record.outcome.name: record for record in found}
