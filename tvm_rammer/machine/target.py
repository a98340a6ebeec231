"""From what a user calls a target to a TVM target, and from that to words for people."""

from __future__ import annotations

import json
from typing import Any

from tvm_rammer.errors import DeviceError

_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def make_target(target: Any) -> Any:
    """The ``tvm.target.Target`` behind what a user may write, not checked yet."""
    from tvm.target import Target

    if isinstance(target, Target):
        return target
    try:
        return Target(target)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        hint = _as_json(target)
        cause = str(error).split(". Target creation from")[0].splitlines()[0]
        advice = f"write it as '{hint}'" if hint else f"{cause}; leave it out for this machine"
        raise DeviceError(f"{target!r} is not a target: {advice}") from error


def _as_json(target: Any) -> str | None:
    """The JSON form of a target written as older TVMs wanted it, such as ``llvm -mcpu=x``."""
    kind, *options = [*str(target).split(), ""]
    pairs = [option.lstrip("-").partition("=") for option in options if option]
    if not isinstance(target, str) or not pairs or not all(value for _, _, value in pairs):
        return None
    values = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
    return json.dumps({"kind": kind, **values})


def architecture(target: Any) -> str:
    """``"x86_64"`` or ``"aarch64"``, or another processor."""
    first = triple_of(target).split("-")[0]
    return _ALIASES.get(first, first)


def triple_of(target: Any) -> str:
    """LLVM's name of the machine that a target is for."""
    from tvm.target import codegen

    return str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple())


def target_text(target: Any) -> str:
    """A target, or its JSON, on one line for people: without the options that say nothing."""
    try:
        options = {key: value for key, value in json.loads(str(target)).items() if value}
    except (ValueError, AttributeError):
        return str(target)
    options.pop("keys", None)
    kind = options.pop("kind", "")
    return ", ".join([kind, *(f"{key} {value}" for key, value in options.items())])
