"""What an import does: tell TVM the pipeline's name, and warn about a tvm-ffi that breaks.

TVM calls :func:`register` at ``import tvm`` (entry-point group ``tvm.backends``). Nothing here may
make an import fail, whoever's import it is.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import metadata
from typing import Any

PIPELINE_NAME = "rammer"


def register() -> None:
    """Let ``relax.build(mod, relax_pipeline="rammer")`` find the pipeline. Never raises."""
    try:
        from tvm.relax.pipeline import PIPELINE_MAP, register_pipeline

        if PIPELINE_NAME not in PIPELINE_MAP:
            register_pipeline(PIPELINE_NAME)(_pipeline)
    except Exception as error:
        warn(f"the pipeline {PIPELINE_NAME!r} is not registered with TVM: {error}")


def registers_at_import_of_tvm() -> bool:
    """Whether TVM calls :func:`register` by itself: we are installed and its autoload is on."""
    return os.environ.get("TVM_DEVICE_BACKEND_AUTOLOAD", "1") != "0" and any(
        entry.value == f"{__name__}:{register.__name__}"
        for entry in metadata.entry_points(group="tvm.backends")
    )


def warn(message: str) -> None:
    """Warn, even under ``python -W error`` without an exception: an import must not fail."""
    try:
        warnings.warn(f"tvm_rammer: {message}", UserWarning, stacklevel=3)
    except UserWarning as warning:
        print(warning, file=sys.stderr)


def _pipeline(**options: Any) -> Any:
    """Make the pipeline: ``relax.get_pipeline("rammer", **options)`` calls this."""
    from tvm_rammer.transform.pipeline import pipeline

    return pipeline(**options)
