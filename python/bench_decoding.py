#!/usr/bin/env python3
"""Time tokens of decoders whose keys and values are buffers of a fixed length.

    python python/bench_decoding.py --places 256,1024,4096 --groups 2,8
    python python/bench_decoding.py --tokens 1,16,64 --places 1024
    python python/bench_decoding.py --bits 32,8,4 --heads 32 --places 256 --groups 8

ONNX Runtime is given one buffer for what its GroupQueryAttention takes and leaves, which is how it
is fastest; where weights have a few bits, it also runs rounding what they multiply to 8 bits, which
is faster and less exact. This project's library keeps the buffers as states, of which a row is
replaced in place; beside it is the same without states, which returns new tensors. All take turns,
each in a process of its own.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click
import numpy as np
import onnx
from bench.console_table import console_table
from bench.contenders import available_threads
from bench.decoder_model import DecoderSizes, decoder
from bench.medians import medians
from bench.outside.onnxruntime_decoder import onnxruntime_decoder
from bench.program_library import decoder_library
from rich.console import Console

import tvm_rammer
from tvm_rammer.testing.contenders import outside_contender, tvm_contender
from tvm_rammer.testing.fair_timing import Settings, time_contenders

_PEER, _ROUNDING, _OURS, _WITHOUT = "onnxruntime", "it rounding data", "states", "no states"


@dataclass(frozen=True)
class Row:
    """A decoder: median milliseconds of a run by contender, and ours over ONNX Runtime's."""

    tokens: int
    bits: int
    places: int
    groups: int
    ms: dict[str, float]
    ratio: float | None
    notes: dict[str, str]


@click.command()
@click.option("--places", default="256,1024,4096", show_default=True, help="Of the buffers.")
@click.option("--groups", default="2,8", show_default=True, help="Heads of keys.")
@click.option("--heads", default=8, show_default=True, help="Of queries, 64 elements each.")
@click.option("--bits", default="32", show_default=True, help="Of weights: 32, 8, 4 or 2.")
@click.option("--tokens", default="1", show_default=True, help="Of a run.")
@click.option("--threads", type=click.IntRange(1), help="All CPUs of this process unless given.")
@click.option("--seconds", default=10.0, show_default=True, help="For a decoder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    places: str,
    groups: str,
    heads: int,
    bits: str,
    tokens: str,
    threads: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Compare this project with ONNX Runtime on single tokens, or on some at once."""
    cores = threads or available_threads()
    cases = product(*(map(int, each.split(",")) for each in (tokens, bits, places, groups)))
    sizes = [
        DecoderSizes(length, kept, heads=heads, bits=width, tokens=count)
        for count, width, length, kept in cases
    ]
    rows = [timed(each, cores, seconds) for each in sizes]
    if as_json:
        click.echo(json.dumps([vars(row) for row in rows], indent=2))
        return
    names = (_PEER, _ROUNDING, _WITHOUT, _OURS)
    cells = [
        (
            str(row.tokens),
            str(row.bits),
            f"{row.places:,}",
            str(row.groups),
            *(f"{row.ms[n]:.3g}" if n in row.ms else row.notes.get(n, "-") for n in names),
            "-" if row.ratio is None else f"{row.ratio:.2f}x",
        )
        for row in rows
    ]
    times = (f"{name}, ms" for name in names)
    columns = ("tokens", "bits", "places", "heads of keys", *times, "states to onnxruntime")
    title = f"A run of a decoder of {sizes[0].layers} layers of {sizes[0].width}"
    Console().print(console_table(title, columns, cells))


def timed(sizes: DecoderSizes, threads: int, seconds: float) -> Row:
    """Build and time one decoder."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("m.onnx", "r.onnx", "inputs.npz", "s.so", "n.so")
        paths = {name: str(Path(folder) / name) for name in names}
        onnx.save(decoder(sizes), paths["m.onnx"])
        onnx.save(decoder(sizes, rounds_data=True), paths["r.onnx"])
        np.savez(paths["inputs.npz"], **sizes.inputs())
        states, options = sizes.states(), {"num_veus": threads}
        tvm_rammer.build(paths["m.onnx"], states=states, **options).export_library(paths["s.so"])
        tvm_rammer.build(paths["m.onnx"], **options).export_library(paths["n.so"])
        given = {"inputs": paths["inputs.npz"], "threads": threads, "states": states}
        peers = [
            outside_contender(name, onnxruntime_decoder, {**given, "model": paths[path]})
            for name, path in ((_PEER, "m.onnx"), (_ROUNDING, "r.onnx"))
            if name == _PEER or sizes.bits in (4, 8)
        ]
        ours = [
            tvm_contender(
                name, decoder_library, {"path": path, "inputs": paths["inputs.npz"]}, threads
            )
            for name, path in ((_OURS, paths["s.so"]), (_WITHOUT, paths["n.so"]))
        ]
        settings = Settings(session_s=seconds)
        found = medians(time_contenders([*peers, *ours], settings), _OURS, [_PEER])
    return Row(sizes.tokens, sizes.bits, sizes.places, sizes.groups, *found)


if __name__ == "__main__":
    main()
