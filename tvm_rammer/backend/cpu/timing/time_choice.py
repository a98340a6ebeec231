"""Choices of the tuner as code of their own: what they compute, and how long they take one core.

Operands rotate through more memory than the second-level cache has, as they do in a network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.cpu.templates.code_budget import within_budget
from tvm_rammer.backend.cpu.timing.kernel_timing import Job, Step, compile_jobs
from tvm_rammer.errors import TuningError
from tvm_rammer.kernel.operands import Operand, copies_for
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.kernel.split import SplitKernel, split_into_stages
from tvm_rammer.tensors import extent, held_as

#: Seconds of one timed run.
_RUN_SECONDS = 1e-3
#: Devices of this type and above are behind a connection.
_REMOTE = 128


@dataclass(frozen=True)
class _EmittedChoice:
    """A choice as its stages."""

    scheduled: Scheduled
    split: SplitKernel

    @classmethod
    def of(cls, choice: Choice) -> _EmittedChoice:
        scheduled = within_budget(choice.emit())
        if scheduled is None:
            raise TuningError(f"{choice.text}: the code exceeds the budget of a body")
        return cls(scheduled, split_into_stages(scheduled.func))

    @cached_property
    def params(self) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
        """Shape, strides in elements and type of each parameter."""
        return [
            (tuple(map(int, p.shape)), tuple(map(int, p.strides)), str(p.dtype))
            for p in self.scheduled.func.params
        ]

    @cached_property
    def outputs(self) -> list[int]:
        """The parameters that are written."""
        written = {
            number
            for stage in self.split.stages
            for number, mode in zip(stage.arguments, stage.modes, strict=True)
            if mode == "write"
        }
        return [number for number in range(len(self.params)) if number in written]

    def job(self, prefix: str) -> Job:
        """All tiles, one after the other."""
        params = [Operand((extent(s, steps),), dtype) for s, steps, dtype in self.params]
        scratch = [Operand(each.shape, each.dtype) for each in self.split.scratch]
        steps = [
            Step(f"{prefix}{k}", stage.num_tiles, stage.arguments)
            for k, stage in enumerate(self.split.stages)
        ]
        return Job(tuple(steps), (*params, *scratch))

    def memory(self, job: Job, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The bytes of all operands; what is no input is NaN."""
        memory = np.full(job.nbytes, 0xFF, np.uint8)
        packings = dict(self.scheduled.packings)
        written = set(self.outputs)
        given = iter(inputs)
        for number in range(len(self.params)):
            if number not in written:
                array = next(given)
                packed = packings[number](array) if number in packings else array
                self.operand(job, number, memory)[...] = packed.view(held_as(packed.dtype))
        return memory

    def operand(self, job: Job, number: int, memory: np.ndarray) -> np.ndarray:
        """A parameter as the memory holds it."""
        shape, strides, name = self.params[number]
        dtype = held_as(name)
        start = job.offsets[number]
        held = memory[start : start + job.operands[number].nbytes].view(dtype)
        if not strides:
            return held.reshape(shape)
        steps = tuple(dtype.itemsize * step for step in strides)
        return np.lib.stride_tricks.as_strided(held, shape, steps)


def compile_choices(choices: Sequence[Choice], target: tvm.target.Target) -> tvm.runtime.Module:
    """Choices as jobs of :mod:`~tvm_rammer.backend.cpu.timing.kernel_timing`."""
    jobs: list[Job] = []
    bodies: dict[str, tirx.PrimFunc] = {}
    for number, choice in enumerate(choices):
        emitted, prefix = _EmittedChoice.of(choice), f"choice{number}_stage"
        jobs.append(emitted.job(prefix))
        bodies |= {f"{prefix}{k}": stage.body for k, stage in enumerate(emitted.split.stages)}
    return compile_jobs(tuple(jobs), bodies, target).module


class CompiledChoices:
    """What :func:`compile_choices` made, on a device; see :class:`~.protocol.Trial`.

    The calling process stays on one core from then on, unless the device is elsewhere.
    """

    def __init__(
        self,
        module: Any,
        choices: Sequence[Choice],
        inputs: Sequence[np.ndarray],
        cache_bytes: int,
        device: Any = None,
    ) -> None:
        self.module, self.device = module, device or tvm.cpu()
        if self.device.dlpack_device_type() < _REMOTE:
            os.sched_setaffinity(0, {host_cpu().cpus[-1]})
        self.emitted = [_EmittedChoice.of(choice) for choice in choices]
        self.jobs = [emitted.job("stage") for emitted in self.emitted]
        self.copies = [copies_for(job.nbytes, cache_bytes) for job in self.jobs]
        self.memories = [
            tvm.runtime.tensor(np.tile(emitted.memory(job, inputs), copies), self.device)
            for emitted, job, copies in zip(self.emitted, self.jobs, self.copies, strict=True)
        ]
        self.repeats: dict[int, int] = {}

    def outputs(self, number: int) -> list[np.ndarray]:
        """What a choice computes."""
        emitted, job, memory = self.emitted[number], self.jobs[number], self.memories[number]
        self.module[f"job_{number}"](1, 1, memory)
        held = memory.numpy()[: job.nbytes]
        return [
            _number(emitted.operand(job, k, held), emitted.params[k][2]) for k in emitted.outputs
        ]

    def seconds(self, number: int, runs: int) -> list[float]:
        """Seconds of a choice, in so many runs of about a millisecond."""
        copies = self.copies[number]
        if number not in self.repeats:
            (once,) = self._run(number, copies, 1)
            self.repeats[number] = copies * max(1, round(_RUN_SECONDS / (once * copies)))
        return self._run(number, self.repeats[number], runs)

    def _run(self, number: int, repeats: int, runs: int) -> list[float]:
        # Where the device is elsewhere, so is the clock.
        clock = self.module.time_evaluator(f"job_{number}", self.device, number=1, repeat=runs)
        found = clock(repeats, self.copies[number], self.memories[number]).results
        return [max(float(seconds), 1e-12) / repeats for seconds in found]


def _number(array: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers of a type that NumPy has, as precise."""
    if dtype != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float16)
