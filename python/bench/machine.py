"""Where, when, with which versions and by which command something was measured."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "openvino", "torch", "numpy")


def machine(script: str, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Facts about this machine, as plain data.

    Parameters
    ----------
    script : str
        How people call what runs.
    before : mapping of str to anything, optional
        The facts of the run that this one goes on from: its commands stay.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    command = shlex.join(["python", script, *map(_anywhere, sys.argv[1:])])
    return {
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "date": now,
        "commands": {**(before or {}).get("commands", {}), command: now},
    }


def sentence(facts: Mapping[str, Any]) -> str:
    """The facts of :func:`machine` in a sentence."""
    installed = {n: v for n, v in facts["versions"].items() if v != "not installed"}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['system']}, {facts['date'][:10]}; "
        f"Python {facts['python']}, {versions}."
    )


def commands(facts: Mapping[str, Any]) -> list[str]:
    """What to type for the same measurements, each with the day on which it last ran."""
    return [f"{command}  # {date[:10]}" for command, date in facts.get("commands", {}).items()]


def typed(facts: Mapping[str, Any]) -> list[str]:
    """The commands as a part of a page, if there are any."""
    lines = commands(facts)
    return ["\n".join(["```text", *lines, "```"])] if lines else []


def _anywhere(argument: str) -> str:
    """An argument as others would type it: where files lie here is of no use to them."""
    return Path(argument).name if os.path.isabs(argument) else argument


def cpu_name() -> str:
    """What this machine's CPU calls itself."""
    lines: Sequence[str] = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
