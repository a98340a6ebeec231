#!/usr/bin/env python3
"""Runs, checks and times the libraries of this folder on a GPU of NVIDIA.

    python run.py
    python run.py --runs 500 --json results.json

Needs numpy, and NVIDIA's driver; no compiler. TVM's runtime lies in the folder ``runtime``, and
where that is left out apache-tvm must be installed. Each form runs in a process of its own, in
turns, as an error of a kernel ends what a process can do with a GPU. A form is timed twice: as
TVM's VM calls it, and as a CUDA graph of the same launches. Exit status: 0, 1 if a form failed or
computes something else than was expected, 2 if nothing could be run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
CUDA, CPU, POOLED = 2, 1, 2
#: Attributes of a device, as the driver numbers them.
_SMS, _MAJOR, _MINOR = 16, 75, 76
#: Runs before any that counts: code is loaded, and the pool has memory for what follows.
_WARM_UP = 5
#: Seconds after which a form counts as hanging.
_PATIENCE = 600


class Obstacle(Exception):
    """Why nothing can be run here, and what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="of a form in a turn (100)")
    parser.add_argument("--turns", type=int, default=3, help="of each form (3)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.runs < 1 or given.turns < 1:
        parser.error("--runs and --turns are at least 1")
    facts = json.loads((FOLDER / "facts.json").read_text())
    try:
        gpu = find_gpu()
        check_gpu(gpu, facts)
        load_runtime(facts)
        if given.only:
            print(json.dumps(measure(facts, given.only, given.runs)))
            return 0
    except Obstacle as obstacle:
        print(f"error: {obstacle}", file=sys.stderr)
        return 2
    found = {form: one_form(facts, form, gpu) for form in facts["forms"]}
    for _ in range(given.turns):
        for form, each in found.items():
            if "problem" not in each:
                take_turn(form, each, given.runs)
    print(table(facts, gpu, found))
    if given.json:
        given.json.write_text(json.dumps({**facts, "gpu": gpu, "found": found}, indent=1) + "\n")
    return 1 if any("problem" in each for each in found.values()) else 0


# ---- what is here -------------------------------------------------------------------------------
def find_gpu() -> dict[str, Any]:
    """The first GPU, as the driver describes it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Obstacle(
            "there is no driver of NVIDIA here, libcuda.so.1 cannot be loaded: run this folder on "
            "a machine with a GPU and its driver"
        ) from None
    count, version, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        raise Obstacle(
            f"the driver finds no GPU (CUDA error {status}): run this folder on a machine with one,"
            " and look at CUDA_VISIBLE_DEVICES"
        )
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGet(ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return {
        "name": name.value.decode(),
        "capability": [attribute(_MAJOR), attribute(_MINOR)],
        "sms": attribute(_SMS),
        "driver": version.value,
    }


def check_gpu(gpu: dict[str, Any], facts: dict[str, Any]) -> None:
    """Refuse a GPU that does not run the machine code, and a driver that is too old."""
    major, minor = gpu["capability"]
    arch = facts["arch"]
    number = int("".join(letter for letter in arch if letter.isdigit()))
    # Code runs on later devices of the same generation; with a suffix on its own device alone.
    later = minor == number % 10 if arch[-1].isalpha() else minor >= number % 10
    if major != number // 10 or not later:
        raise Obstacle(
            f"this GPU, {gpu['name']}, is sm_{major}{minor}, and the libraries were built for "
            f"{arch}: pack the model again with --arch sm_{major}{minor}"
        )
    if gpu["driver"] // 1000 < facts["cuda"]:
        raise Obstacle(
            f"the driver here is for CUDA {_version(gpu['driver'])}, and TVM's runtime needs "
            f"{facts['cuda']}.0: update the driver"
        )


def load_runtime(facts: dict[str, Any]) -> None:
    """Load TVM's runtime: the one beside this file, else the one that is installed."""
    packed = FOLDER / "runtime"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if find_spec("numpy") is None:
        raise Obstacle("numpy is not installed: pip install numpy")
    if packed.is_dir():
        if facts["python"] != python:
            raise Obstacle(
                f"the runtime in this folder is for Python {facts['python']}, and this is "
                f"{python}: run it by python{facts['python']}, or pack again with --python {python}"
            )
        sys.path.insert(0, str(packed))
        libraries = packed / "lib"
    else:
        found = find_spec("tvm")
        if found is None or not found.origin:
            raise Obstacle(
                "TVM's runtime is not here: pip install apache-tvm==0.27.*, or pack again without "
                "--no-runtime"
            )
        libraries = Path(found.origin).parent / "lib"
    import_module("tvm_ffi")
    _load(libraries / "libtvm_runtime.so")
    if not Path(libraries, facts["cudart"]).exists():
        _load_cudart(facts["cudart"])
    _load(libraries / "libtvm_runtime_cuda.so")


def _load_cudart(name: str) -> None:
    """Load CUDA's runtime library: from where the system has it, or one of NVIDIA's packages."""
    places = [name]
    packages = find_spec("nvidia")
    for folder in packages.submodule_search_locations or () if packages else ():
        places += sorted(str(path) for path in Path(folder).glob(f"*/lib/{name}"))
    for place in places:
        try:
            ctypes.CDLL(place, ctypes.RTLD_GLOBAL)
            return
        except OSError:
            pass
    raise Obstacle(
        f"{name} is not here, which TVM's runtime for CUDA needs: pip install nvidia-cuda-runtime, "
        "or name its folder in LD_LIBRARY_PATH"
    )


def _load(library: Path) -> None:
    try:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Obstacle(f"{library} cannot be loaded: {error}") from error


# ---- one form, in a process of its own ----------------------------------------------------------
def measure(facts: dict[str, Any], form: str, runs: int) -> dict[str, Any]:
    """Run a form: how far its outputs are from what was expected, and seconds of each run."""
    model = PackedModel(facts, form)
    for _ in range(_WARM_UP):
        model.run()
    model.sync()
    found: dict[str, Any] = {"error": model.error(), "launched": timed(model.run, model.sync, runs)}
    with model.captured() as (launch, sync, launches):
        model.forget()
        launch()
        sync()
        found["captured_error"] = model.error()
        found["captured"] = timed(launch, sync, runs)
        found["launches"] = launches
    return found


class PackedModel:
    """A library in TVM's VM on the first GPU, with the inputs of this folder."""

    def __init__(self, facts: dict[str, Any], form: str) -> None:
        numpy, self._ffi = import_module("numpy"), import_module("tvm_ffi")
        self._device = self._ffi.device("cuda", 0)
        inputs, self._expected = (
            [saved[name] for name in saved.files]
            for saved in (numpy.load(FOLDER / "inputs.npz"), numpy.load(FOLDER / "expected.npz"))
        )
        library = self._ffi.load_module(str(FOLDER / facts["forms"][form]["file"]))
        self._machine = library["vm_load_executable"]()
        self._machine["vm_initialization"](CUDA, 0, POOLED, CPU, 0, POOLED)
        self._machine["set_input"]("main", *[self._ffi.from_dlpack(each) for each in inputs])
        self._invoke = self._machine["invoke_stateful"]

    def run(self) -> None:
        self._invoke("main")

    def sync(self, stream: int = 0) -> None:
        self._call("runtime.Device_StreamSync", self._device, stream)

    def error(self) -> float:
        """The largest relative error of an output: the norm of the difference over that of it."""
        return max(map(_relative_error, self._outputs(), self._expected), default=0.0)

    def forget(self) -> None:
        """Overwrite the outputs."""
        for tensor in self._tensors():
            zeros = self._like(tensor)
            pointer = ctypes.c_void_p(zeros.ctypes.data)
            self._call("runtime.TVMTensorCopyFromBytes", tensor, pointer, zeros.nbytes)

    @contextmanager
    def captured(self) -> Iterator[tuple[Any, Any, int]]:
        """Functions that launch the model as a CUDA graph and that wait for it; its launches."""
        cudart = Cudart()
        stream = self._call("runtime.Device_StreamCreate", self._device)
        with self._ffi.use_raw_stream(self._device, stream):
            graph = cudart.capture(stream, self.run)
        try:
            yield lambda: graph.launch(stream), lambda: self.sync(stream), graph.nodes
        finally:
            graph.free()
            self._call("runtime.Device_StreamFree", self._device, stream)

    def _outputs(self) -> list[Any]:
        values = []
        for tensor in self._tensors():
            value = self._like(tensor)
            pointer = ctypes.c_void_p(value.ctypes.data)
            self._call("runtime.TVMTensorCopyToBytes", tensor, pointer, value.nbytes)
            values.append(value)
        return values

    def _tensors(self) -> list[Any]:
        result = self._machine["get_output"]("main")
        return [result] if isinstance(result, self._ffi.Tensor) else list(result)

    @staticmethod
    def _like(tensor: Any) -> Any:
        return import_module("numpy").zeros(tuple(tensor.shape), str(tensor.dtype))

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._ffi.get_global_func(name)(*arguments)


class Cudart:
    """CUDA's runtime library, which TVM's runtime has loaded, for what TVM does not do itself."""

    def __init__(self) -> None:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "libcudart.so" in line}
        self._library = ctypes.CDLL(paths.pop())
        self._library.cudaGetErrorName.restype = ctypes.c_char_p

    def capture(self, stream: int, work: Any) -> Graph:
        """What ``work`` launches on a stream, as a graph; nothing runs."""
        handle, graph, executable = (ctypes.c_void_p(value) for value in (stream, None, None))
        self.call("cudaStreamBeginCapture", handle, 0)
        try:
            work()
        finally:
            # Also after an error: a capture that goes on breaks all that follows.
            status = self._library.cudaStreamEndCapture(handle, ctypes.byref(graph))
        self.check("cudaStreamEndCapture", status)
        nodes = ctypes.c_size_t()
        self.call("cudaGraphGetNodes", graph, None, ctypes.byref(nodes))
        flags = ctypes.c_ulonglong(0)
        self.call("cudaGraphInstantiate", ctypes.byref(executable), graph, flags)
        self.call("cudaGraphDestroy", graph)
        return Graph(self, executable, nodes.value)

    def call(self, name: str, *arguments: Any) -> None:
        self.check(name, getattr(self._library, name)(*arguments))

    def check(self, name: str, status: int) -> None:
        if status:
            why = self._library.cudaGetErrorName(status).decode()
            raise RuntimeError(f"{name} fails: {why}")


class Graph:
    """Launches that were captured."""

    def __init__(self, cudart: Cudart, executable: Any, nodes: int) -> None:
        self._cudart, self._executable, self.nodes = cudart, executable, nodes

    def launch(self, stream: int) -> None:
        self._cudart.call("cudaGraphLaunch", self._executable, ctypes.c_void_p(stream))

    def free(self) -> None:
        self._cudart.call("cudaGraphExecDestroy", self._executable)


def timed(launch: Any, sync: Any, runs: int) -> list[float]:
    """Seconds of each of so many runs, from its launch until the GPU is done."""
    seconds = []
    for _ in range(_WARM_UP + runs):
        started = time.perf_counter()
        launch()
        sync()
        seconds.append(time.perf_counter() - started)
    return seconds[_WARM_UP:]


def _relative_error(got: Any, want: Any) -> float:
    numpy = import_module("numpy")
    if got.shape != want.shape:
        return float("inf")
    got, want = got.astype("float64"), want.astype("float64")
    scale = numpy.linalg.norm(want.ravel()) or 1.0
    error = float(numpy.linalg.norm((got - want).ravel()) / scale)
    return error if error == error else float("inf")


# ---- all forms ----------------------------------------------------------------------------------
def one_form(facts: dict[str, Any], form: str, gpu: dict[str, Any]) -> dict[str, Any]:
    """A form before its first turn; one whose blocks do not fit on the GPU is not tried."""
    blocks = facts["forms"][form].get("resident_blocks", 0)
    room = gpu["sms"] * facts["blocks_per_sm"]
    if blocks > room:
        return {
            "problem": f"its {blocks} blocks wait for each other, and this GPU has room for {room} "
            f"at the same time: pack the model again with --num-veus {room}"
        }
    return {"error": 0.0, "launched": [], "captured": [], "tolerance": facts["tolerance"]}


def take_turn(form: str, found: dict[str, Any], runs: int) -> None:
    """Run a form in a process of its own, and keep what it found."""
    command = [sys.executable, str(FOLDER / "run.py"), "--only", form, "--runs", str(runs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        found["problem"] = f"it did not end within {_PATIENCE} seconds"
        return
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"its process ended by {done.returncode}"]
        found["problem"] = next((each for each in lines if "Error: " in each), lines[-1])
        return
    new = json.loads(done.stdout.splitlines()[-1])
    found["error"] = max(found["error"], new["error"], new["captured_error"])
    found["launches"] = new["launches"]
    found["launched"] += new["launched"]
    found["captured"] += new["captured"]
    if not found["error"] <= found["tolerance"]:
        found["problem"] = (
            f"it computes something else than was expected: relative error {found['error']:.2g}, "
            f"allowed {found['tolerance']:.2g}"
        )


def table(facts: dict[str, Any], gpu: dict[str, Any], found: dict[str, dict[str, Any]]) -> str:
    """Medians in milliseconds, and how many times faster than the first form."""
    major, minor = gpu["capability"]
    lines = [
        f"{facts['model']} on {gpu['name']} (sm_{major}{minor}, {gpu['sms']} SMs, CUDA "
        f"{_version(gpu['driver'])}): median ms, times faster than the first, quartiles"
    ]
    rows = [["form", "launches", "error", "by TVM's VM", "as a CUDA graph"]]
    timed_forms = [each for each in found.values() if each.get("launched")]
    base = timed_forms[0] if timed_forms else {}
    for form, each in found.items():
        if not each.get("launched"):
            continue
        times = [_time_cell(each[kind], base[kind]) for kind in ("launched", "captured")]
        rows.append([form, str(each["launches"]), f"{each['error']:.1e}", *times])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"{form}: {each['problem']}" for form, each in found.items() if "problem" in each]
    return "\n".join(lines)


def _time_cell(seconds: Sequence[float], base: Sequence[float]) -> str:
    median = statistics.median(seconds)
    low, _, high = statistics.quantiles([*seconds, median], n=4)
    gain = statistics.median(base) / median
    return f"{median * 1e3:.3f} {gain:.2f}x ({low * 1e3:.3f} to {high * 1e3:.3f})"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


if __name__ == "__main__":
    sys.exit(main())
