"""Every small program gives what PyTorch computes in eager mode, or is refused by name.

The programs of a family are one program, exported and built at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

torch = pytest.importorskip("torch")

from torch_programs import FAMILIES, Program, Wrapped  # noqa: E402

from tvm_rammer.errors import ModelError  # noqa: E402
from tvm_rammer.frontend import load_model  # noqa: E402
from tvm_rammer.transform.keep_indices_inside import KeepIndicesInside  # noqa: E402
from tvm_rammer.transform.legalize_operators import legalize_ops  # noqa: E402

#: Errors that are allowed, relative to the larger of 1 and the largest value of the result.
_TOLERANCE = 1e-5

ACCEPTED = [
    (family, name)
    for family, programs in FAMILIES.items()
    for name, program in programs.items()
    if program.refusal is None
]
REFUSED = [
    (family, name)
    for family, programs in FAMILIES.items()
    for name, program in programs.items()
    if program.refusal is not None
]


class Together(torch.nn.Module):
    """Programs one after the other, each with its own inputs."""

    def __init__(self, programs: Iterable[Program]) -> None:
        super().__init__()
        self.counts = [len(program.inputs) for program in programs]
        self.bodies = torch.nn.ModuleList(map(as_module, programs))

    def forward(self, *inputs: Any) -> list[Any]:
        rest = list(inputs)
        return [
            body(*[rest.pop(0) for _ in range(count)])
            for body, count in zip(self.bodies, self.counts, strict=True)
        ]


def as_module(program: Program) -> Any:
    body = program.body
    return body if isinstance(body, torch.nn.Module) else Wrapped(body)


def exported(programs: list[Program]) -> Any:
    inputs = tuple(tensor.clone() for program in programs for tensor in program.inputs)
    return torch.export.export(Together(programs), inputs)


@cache
def results(family: str) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """What the programs of a family give here and in eager mode."""
    names = [name for name, program in FAMILIES[family].items() if program.refusal is None]
    programs = [FAMILIES[family][name] for name in names]
    with torch.no_grad():
        expected = [
            [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves(outputs) if leaf is not None]
            for outputs in Together(programs)(*(t.clone() for p in programs for t in p.inputs))
        ]
    loaded = load_model(exported(programs))
    # The passes give TVM's scattering the meaning that the front ends' operators have.
    module = legalize_ops()(KeepIndicesInside()(loaded.module))
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    inputs = [tvm.runtime.tensor(t.numpy()) for program in programs for t in program.inputs]
    found = [output.numpy() for output in machine["main"](*inputs)]
    assert len(found) == sum(map(len, expected))
    return {
        name: ([found.pop(0) for _ in values], values)
        for name, values in zip(names, expected, strict=True)
    }


@pytest.mark.parametrize(("family", "name"), ACCEPTED)
def test_a_program_gives_the_result_of_eager_mode(family, name):
    for found, expected in zip(*results(family)[name], strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected)
            continue
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE * scale)


@pytest.mark.parametrize(("family", "name"), REFUSED)
def test_a_program_is_refused_by_name(family, name):
    program = FAMILIES[family][name]
    with pytest.raises(ModelError) as caught:
        load_model(torch.export.export(as_module(program), program.inputs))
    text = str(caught.value)
    assert text.startswith("the model: ")
    assert program.refusal in text
    assert "\n" not in text
