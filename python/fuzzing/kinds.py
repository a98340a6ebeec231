"""The kinds of cases: each makes one from a seed, and says what became of it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from click.testing import CliRunner
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from onnx.backend.test.loader import load_model_tests

import tvm_rammer
from fuzzing.edits import TEXTS, edited
from fuzzing.finds import Find, check_refusal, compare
from fuzzing.layers import run_emulated, run_layers
from fuzzing.networks import run_graph, run_network
from fuzzing.peer import Peer
from fuzzing.plans import judge
from tvm_rammer.cli import main
from tvm_rammer.errors import LibraryError, RammerError
from tvm_rammer.testing.models import get_model

sys.path.append(str(Path(__file__).parents[2] / "tests"))

#: Inputs with more elements than this are not made.
_MOST_ELEMENTS = 1 << 20
_peer = Peer()


def run_model(rng: Random, folder: Path) -> str:
    """An edited model is refused, or computes what ONNX Runtime computes."""
    name, base = rng.choice(small_models())
    try:
        model = ParseDict(edited(MessageToDict(base), rng)[0], onnx.ModelProto())
    except (ParseError, ValueError, TypeError, OverflowError):
        return "no model"
    path = folder / "model.onnx"
    onnx.save(model, path)
    try:
        library = tvm_rammer.build(path, policy="sequential", num_veus=2, oversubscribe=True)
        inputs = _inputs(library, np.random.default_rng(rng.randrange(1 << 30)))
        if inputs is None:
            return "no inputs"
        instance = library.create()
        instance.run(**inputs)
    except RammerError as error:
        return check_refusal(error)
    ours = [instance.get_output(k).numpy() for k in range(len(library.description.outputs))]
    theirs = _peer.run(path.read_bytes(), inputs)
    if theirs is None:
        return "no reference"
    for mine, wanted in zip(ours, _tensors(theirs), strict=True):
        compare(name, mine, np.asarray(wanted))
    return "right"


def _tensors(outputs: list[Any]) -> list[Any]:
    """The tensors of sequences too, each an output of its own, as a library has them."""
    return [x for each in outputs for x in (each if isinstance(each, list) else [each])]


def _inputs(library: Any, rng: np.random.Generator) -> dict[str, np.ndarray] | None:
    found = {}
    for info in library.description.inputs:
        if info.shape is None or np.prod(info.shape, dtype=float) > _MOST_ELEMENTS:
            return None
        drawn = rng.standard_normal(info.shape) * (1 if "float" in info.dtype else 0)
        if np.dtype(info.dtype).kind in "iub":
            drawn = rng.integers(0, 2, info.shape)
        found[info.name] = drawn.astype(info.dtype)
    return found


def run_plan(rng: Random, folder: Path) -> str:
    """An edited plan file is refused, or safe by definition and can be shown."""
    from rprogram.oracle import is_safe

    document, _ = edited(rng.choice(documents()), rng)
    return judge(document, folder / "plan.json", is_safe)


def run_library(rng: Random, folder: Path) -> str:
    """A library that differs from what was written is refused when it is loaded."""
    base = library_bytes()
    content = bytearray(base)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(content))
        match rng.randrange(5):
            case 0 | 1:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                length = rng.choice((1, 16, 4096))
                content[at : at + length] = rng.randbytes(len(content[at : at + length]))
            case 3:
                del content[at : at + rng.choice((1, 8, 4096, len(content)))]
            case 4:
                content[at:at] = bytes(rng.choice((1, 8, 4096)))
        if not content:
            break
    path = folder / "damaged.so"
    path.write_bytes(content)
    try:
        tvm_rammer.load(path)
    except LibraryError as error:
        return check_refusal(error)
    if bytes(content) == base:
        return "unchanged"
    raise Find("a damaged library was loaded")


def run_cache(rng: Random, folder: Path) -> str:
    """A build succeeds whatever lies in the cache folder."""
    os.environ["TVM_RAMMER_CACHE_DIR"] = str(folder)
    model = get_model("mlp").tiny()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tvm_rammer.build(model)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            _spoil(path, rng)
        for _ in range(2):
            tvm_rammer.build(model)
    if left := [path.name for path in folder.rglob(".rammer-*")]:
        raise Find(f"{left} are left")
    return "built"


def _spoil(path: Path, rng: Random) -> None:
    match rng.randrange(8):
        case 0:
            path.write_bytes(rng.randbytes(rng.randrange(200)))
        case 1:
            path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])
        case 2:
            path.unlink()
            rng.choice((os.mkfifo, os.mkdir, lambda p: p.symlink_to("/dev/zero")))(path)
        case 3:
            path.write_text("[" * rng.randrange(1, 200_000))
        case _:
            path.write_text(json.dumps(edited(json.loads(path.read_text()), rng, 5)[0]))


_WORDS = (
    "-o", "--output", "--shape", "--constant", "--policy", "--num-veus", "--form", "--target",
    "--input", "--repeat", "--seed", "--json", "--debug", "--html", "--svg", "--trace", "--all",
    "--check", "--help", "--max-arena-bytes", "--wait-limit", "--tiny", "--kernels",
    "model.onnx", "model.so", "model.json", "out.so", "plan.html", "x.npy", "x=1,8", "x=0", "=",
    "sequential", "wavefront", "ios", "program", "per-op", "0", "1", "2", "-1", "nan", "1e999",
    "99999999999999999999", "llvm", "cuda", '{"kind": "llvm"}', "{", "mlp", "/dev/null", ".", "..",
    "no/where.so", *TEXTS[:7],
)  # fmt: skip
_COMMANDS = ("compile", "run", "show", "explain", "models", "doctor")


def run_command(rng: Random, folder: Path) -> str:
    """A command line succeeds or says in one line what is wrong with it."""
    name, model = rng.choice(small_models())
    onnx.save(model, folder / "model.onnx")
    (folder / "model.so").write_bytes(library_bytes())
    (folder / "model.json").write_text(json.dumps(rng.choice(documents())))
    np.save(folder / "x.npy", np.zeros((1, 8), "float32"))
    command = rng.choice(_COMMANDS)
    words = [rng.choice(_WORDS) for _ in range(rng.randrange(6))]
    if command in ("compile", "run", "show", "explain") and rng.random() < 0.8:
        words.insert(0, rng.choice(("model.onnx", "model.so", "model.json")))
    if command == "compile" and rng.random() < 0.7:
        words += ["-o", "out.so"]
    if command in ("doctor", "models"):
        words = ["--clear-cache", *words] if command == "doctor" else ["mlp", *words]
    os.environ["TVM_RAMMER_CACHE_DIR"] = str(folder / "cache")
    os.chdir(folder)
    result = CliRunner().invoke(main, [command, *words])
    said = f"{command} {words} on {name}: {result.exit_code} {result.stderr[-600:]}"
    if result.exit_code not in (0, 1, 2):
        raise Find(said)
    if "Traceback" in result.stderr and "--debug" not in words:
        raise Find(said)
    if "error: unexpected" in result.stderr or set(result.output) & set("\x1b\x00\x07\u202e"):
        raise Find(said)
    if left := [path.name for path in folder.rglob(".rammer-*")]:
        raise Find(f"{said}: {left} are left")
    return "done" if result.exit_code == 0 else "refused"


KINDS: Mapping[str, Callable[[Random, Path], str]] = {
    "models": run_model,
    "layers": run_layers,
    "emulated": run_emulated,
    "networks": run_network,
    "graphs": run_graph,
    "plans": run_plan,
    "libraries": run_library,
    "caches": run_cache,
    "commands": run_command,
}


#: Their results are random, or they need types that nobody feeds.
_LEFT_OUT = ("dropout", "bernoulli", "random", "sequence", "optional", "string", "training")
_LEFT_OUT += ("strnorm", "tfidf", "regex", "image_decoder", "momentum", "adagrad", "adam")
_NETWORKS = (("lstm_8x8x256", "wavefront"), ("inception_v1", "sequential"), ("mlp", "ios"))


@cache
def small_models() -> list[tuple[str, onnx.ModelProto]]:
    """Names and models of the tests of single operators that the onnx package brings."""
    with warnings.catch_warnings():
        # ONNX computes what it expects with infinities and NaN among it.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return [
        (case.name, case.model)
        for case in sorted(cases, key=lambda case: case.name)
        if case.model is not None and not any(word in case.name for word in _LEFT_OUT)
    ]


@cache
def documents() -> list[dict[str, Any]]:
    """What ``tvm-rammer show --json`` prints of three networks, less what nobody reads."""
    found = []
    for name, policy in _NETWORKS:
        library = tvm_rammer.build(
            get_model(name).tiny(), policy=policy, num_veus=2, oversubscribe=True
        )
        found.append(json.loads(json.dumps(library.description.content)))
    return found


@cache
def library_bytes() -> bytes:
    """A small library, as a file holds it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        library = tvm_rammer.build(get_model("lstm_8x8x256").tiny(), num_veus=2, oversubscribe=True)
        return library.export_library(Path(folder) / "base.so").read_bytes()
