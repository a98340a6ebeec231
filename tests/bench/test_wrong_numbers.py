"""Wrong numbers of a machine, and what tuning wins back of what they lose."""

from __future__ import annotations

import pytest
from bench.wrong_numbers import WonBack, numbers, wrong

from tvm_rammer.backend import backend_for, resolve_target
from tvm_rammer.options import Options
from tvm_rammer.testing.timing_results import Ratio


def test_a_processor_that_nobody_calibrated():
    target = resolve_target(None)
    true = Options().resolve(target).vdevice
    with numbers(wrong):
        told = Options(num_veus=1).resolve(target).vdevice
    assert told.vector_registers * 2 == true.vector_registers
    assert told.l2_bytes * 4 == true.l2_bytes
    latency = told.speeds.cycles.multiply_add_latency
    assert latency == 2 * true.speeds.cycles.multiply_add_latency
    assert (told.name, told.num_veus, told.host) == (true.name, 1, true.host)
    assert Options().resolve(target).vdevice == true
    assert backend_for().vdevice(target) == true


@pytest.mark.parametrize(
    ("lost", "tuned", "share"),
    [
        (Ratio(0.8, 0.78, 0.82), Ratio(0.8, 0.7, 0.9), 1.0),
        (Ratio(0.8, 0.78, 0.82), Ratio(0.9, 0.89, 0.91), 0.5),
        (Ratio(0.8, 0.78, 0.82), Ratio(1.1, 1.0, 1.2), -0.5),
        (Ratio(0.99, 0.97, 1.01), Ratio(0.9, 0.89, 0.91), None),
    ],
)
def test_the_share_that_is_won_back(lost, tuned, share):
    found = WonBack("net", (1.0, 1.0, 1.0), lost, tuned).share
    assert found is None if share is None else found == pytest.approx(share)
