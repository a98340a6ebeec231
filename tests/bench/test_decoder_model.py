"""The decoder that is timed computes in this project what it does in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from bench.decoder_model import DecoderSizes, decoder
from bench.outside.onnxruntime_decoder import onnxruntime_decoder
from bench.program_library import decoder_library

import tvm_rammer

pytest.importorskip("onnxruntime")
SIZES = DecoderSizes(places=8, groups=2, layers=2, heads=4, head_size=16)


@pytest.mark.parametrize(("bits", "tokens"), [(32, 1), (4, 1), (32, 3)])
def test_tokens_are_the_same_with_states_and_without(tmp_path, bits, tokens):
    sizes = replace(SIZES, bits=bits, head_size=32, tokens=tokens)
    model, inputs = str(tmp_path / "m.onnx"), str(tmp_path / "inputs.npz")
    onnx.save(decoder(sizes), model)
    np.savez(inputs, **sizes.inputs())
    run, outputs = onnxruntime_decoder(model, inputs, sizes.states(), 1)
    run()
    (want,) = outputs()
    assert want.shape == (1, tokens, sizes.width)
    for states in (sizes.states(), {}):
        library = tvm_rammer.build(model, states=states, policy="sequential", num_veus=2)
        kernels = library.report.regions[0].kernels
        assert ("few bits" in kernels) == (bits == 4)
        run, outputs = decoder_library(library.export_library(tmp_path / "m.so"), inputs)
        run()
        np.testing.assert_allclose(outputs()[0], want, rtol=1e-4, atol=1e-5)
