"""Plans in files that ``tvm-rammer show --json`` wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_rammer.errors import PlanError
from tvm_rammer.typed_json import parse_json, problem_of

if TYPE_CHECKING:
    from tvm_rammer.runtime.description import LibraryDescription

_NO_PLAN = "not a plan that `tvm-rammer show --json` wrote, or damaged"

#: How a plan begins, however little of it there is; a module of TVM has no such key.
_BEGIN = re.compile(r'\s*\{\s*"format"\s*:')


def read_plan(source: Path) -> LibraryDescription | None:
    """The plan in a file that --json wrote; None if the file is something else."""
    if source.suffix != ".json":
        return None
    try:
        text = source.read_text()
    except (OSError, ValueError):
        return None  # whoever reads it as a model says what is wrong
    try:
        content = parse_json(text)
    except ValueError as error:
        if not _BEGIN.match(text):
            return None
        raise PlanError(f"{source}: {_NO_PLAN}: {error}; write it again") from error
    if not isinstance(content, dict) or not ("programs" in content or _BEGIN.match(text)):
        return None
    from tvm_rammer.region.library_content import FORMAT_VERSION
    from tvm_rammer.runtime.description import LibraryDescription

    if content.get("format") != FORMAT_VERSION:
        raise PlanError(
            f"{source}: plan format {content.get('format')}, this version reads {FORMAT_VERSION}; "
            "write it again with `tvm-rammer show --json`"
        )
    description = LibraryDescription(content)
    try:
        description.check()
    except PlanError as error:
        raise PlanError(f"{source}: {error}") from error
    except ValueError as error:
        raise PlanError(f"{source}: {_NO_PLAN}: {problem_of(error)}") from error
    return description
