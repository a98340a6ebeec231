"""Which PrimFuncs leave a parameter as it was but for a part."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import legalized_func, numbers
from tvm import relax

from tvm_rammer.kernel.replacement import replaced_parameter

OP = relax.op
PLACES, NEW, OLD = numbers((1, 8, 1), "bool"), numbers((4, 1, 16)), numbers((4, 8, 16), seed=1)
MORE = numbers((4, 1, 16), seed=2)


@pytest.mark.parametrize(
    ("build", "inputs", "position"),
    [
        (OP.where, (PLACES, NEW, OLD), 2),
        (lambda p, n, o: OP.where(p, OP.exp(n), o), (PLACES, NEW, OLD), 2),
        (lambda p, n, m, o: OP.where(p, OP.add(n, m), o), (PLACES, NEW, MORE, OLD), 3),
        # What is kept is another one, or nothing, or read twice, or at other places.
        (lambda p, n, o: OP.where(p, o, n), (PLACES, NEW, OLD), None),
        (lambda p, n, o: OP.add(OP.where(p, n, o), n), (PLACES, NEW, OLD), None),
        (lambda p, n, o: OP.where(p, OP.add(n, o), o), (PLACES, NEW, OLD), None),
        (lambda p, n, o: OP.where(p, n, OP.flip(o, 1)), (PLACES, NEW, OLD), None),
        (lambda p, n: OP.where(p, OP.broadcast_to(n, (4, 8, 16)), n), (PLACES, NEW), None),
        (OP.add, (NEW, OLD), None),
        (lambda o: OP.sum(o, 1), (OLD,), None),
    ],
)
def test_what_is_kept(build, inputs, position):
    assert replaced_parameter(legalized_func(build, *inputs)) == position


def test_a_scalar():
    inputs = (np.array(True), np.array(1.0, "float32"), np.array(2.0, "float32"))
    assert replaced_parameter(legalized_func(OP.where, *inputs)) == 2
