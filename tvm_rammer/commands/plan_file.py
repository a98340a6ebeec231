"""Plans in files that ``tvm-rammer show --json`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvm_rammer.errors import PlanError
from tvm_rammer.records import parse_json, problem_of

if TYPE_CHECKING:
    from tvm_rammer.runtime.description import LibraryDescription


def read_plan(source: Path) -> LibraryDescription | None:
    """The plan in a file that --json wrote; None if the file is something else."""
    if source.suffix != ".json":
        return None
    try:
        content = parse_json(source.read_text())
    except (OSError, ValueError):
        return None  # whoever reads it as a model says what is wrong
    if not isinstance(content, dict) or "programs" not in content:
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
        raise PlanError(
            f"{source}: not a plan that `tvm-rammer show --json` wrote, or damaged: "
            f"{problem_of(error)}"
        ) from error
    return description
