"""What compiled kernels issue, counted from the machine code that ``nvdisasm`` shows.

TIR says how much a tile computes, machine code how many instructions come with it: indices, loops,
predicates, spills. How often loops run is not in the machine code, so both are needed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tvm_rammer.backend.cuda.cubin import Cubin, find_tool
from tvm_rammer.backend.cuda.devices import WARP_THREADS
from tvm_rammer.backend.cuda.operation_counts import Operations
from tvm_rammer.errors import DeviceError

_ARITHMETIC = re.compile(r"(?:FFMA|FADD|FMUL|FMNMX|H(?:FMA2|ADD2|MUL2|MNMX2)|MUFU)\b")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_JUMP = re.compile(r"`\((\.L_\w+)\)")


@dataclass(frozen=True)
class Issued:
    """Instructions of one warp.

    Attributes
    ----------
    all : int
    arithmetic : int
        Of them those of floating-point arithmetic and of the special units.
    """

    all: int = 0
    arithmetic: int = 0


@dataclass(frozen=True)
class MachineCode:
    """The instructions of a function by the loops around them.

    Attributes
    ----------
    name : str
    depths : tuple of Issued
        ``depths[n]`` are inside of ``n`` loops.
    """

    name: str
    depths: tuple[Issued, ...]

    def total(self, first: int, last: int | None = None) -> Issued:
        """What is inside of ``first`` to ``last - 1`` loops."""
        some = self.depths[first:last]
        return Issued(sum(each.all for each in some), sum(each.arithmetic for each in some))


def issued_for(code: MachineCode, work: Operations, warps: int, outer_loops: int) -> float:
    """Instructions of warps that a block issues for a tile.

    Parameters
    ----------
    code : MachineCode
    work : Operations
        Of the tile.
    warps : int
        Of a block.
    outer_loops : int
        Loops around the tile: what is in no further loop runs once for it, and what is in one as
        often as the arithmetic there must.
    """
    once, loops = code.total(0, outer_loops + 1), code.total(outer_loops + 1)
    arithmetic = (work.float32 + work.float16 + work.special) / WARP_THREADS
    looped = max(0.0, arithmetic - once.arithmetic * warps)
    share = loops.all / loops.arithmetic if loops.arithmetic else 0.0
    return once.all * warps + looped * share


def machine_code(cubin: Cubin) -> dict[str, MachineCode]:
    """The functions of compiled kernels.

    Raises
    ------
    DeviceError
        When ``nvdisasm`` is not there, or does not read the image.
    """
    tool = find_tool("nvdisasm")
    if tool is None:
        raise DeviceError(
            "nvdisasm is not there, which shows the machine code of GPUs: install CUDA's tools or "
            "the package nvidia-cuda-nvdisasm"
        )
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "kernels.cubin")
        image.write_bytes(cubin.image)
        done = subprocess.run([str(tool), "-c", str(image)], capture_output=True, text=True)
    if done.returncode:
        raise DeviceError(f"nvdisasm does not read code for {cubin.arch}: {done.stderr.strip()}")
    return {code.name: code for code in parse_sass(done.stdout)}


def parse_sass(text: str) -> Iterator[MachineCode]:
    """The functions in what ``nvdisasm -c`` prints."""
    for section in re.split(r"^//-+ ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition(" ")
        if name.startswith(".text."):
            yield MachineCode(name.removeprefix(".text."), _depths(body))


def _depths(body: str) -> tuple[Issued, ...]:
    instructions: list[tuple[int, str]] = []
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    for line in body.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif found := _INSTRUCTION.search(line):
            place, opcode = len(instructions), found[2]
            if target := _JUMP.search(found[3]) if opcode.startswith("BRA") else None:
                jumps.append((place, target[1]))
            instructions.append((place, opcode))
    # A jump to itself ends a function, and is no loop; what follows it is padding.
    ends = [place for place, target in jumps if labels.get(target) == place]
    loops = {(labels[t], place) for place, t in jumps if labels.get(t, place) < place}
    counts: dict[int, list[int]] = {}
    for place, opcode in instructions[: min(ends, default=len(instructions))]:
        depth = sum(first <= place <= last for first, last in loops)
        count = counts.setdefault(depth, [0, 0])
        count[0] += 1
        count[1] += bool(_ARITHMETIC.match(opcode))
    deepest = max(counts, default=-1)
    return tuple(Issued(*counts.get(depth, [0, 0])) for depth in range(deepest + 1))
