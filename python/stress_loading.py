#!/usr/bin/env python3
"""Run models in many threads while their file changes, is loaded again, and children fork.

    python python/stress_loading.py --minutes 10

What is counted are runs, loads, files that were met half written and refused, and children. Another
result than that of a version, a child that fails or hangs, and a load that fails in another way are
errors, and the exit status is 1.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import click

# Workers of threads that have ended go to sleep at once: they would take the others' cores.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "100")


@click.command()
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(min=0.01))
@click.option("--threads", default=16, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
def main(minutes: float, threads: int, seed: int) -> None:
    """Stress loading, running and forking."""
    from stress.reload_stress import stress

    with tempfile.TemporaryDirectory() as folder:
        found = stress(Path(folder), minutes * 60, threads, seed)
    document = {
        **found.counts,
        "wrong": found.wrong[:10],
        "resident MB": [size >> 20 for size in found.resident],
    }
    click.echo(json.dumps(document, indent=2))
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
