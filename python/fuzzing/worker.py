"""Answers seeds on standard input with verdicts on standard output, until it dies of one.

python -m fuzzing.worker plans
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

from fuzzing.finds import Find
from fuzzing.kinds import KINDS


def main(kind: str) -> None:
    """Work through seeds."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    home = os.getcwd()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        seed = int(line)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            try:
                answer = {"verdict": KINDS[kind](Random(f"{kind} {seed}"), Path(folder))}
            except Find as find:
                answer = {"verdict": "wrong", "said": str(find)}
            except Exception:
                answer = {"verdict": "traceback", "said": traceback.format_exc()}
            os.chdir(home)
        print(json.dumps({"seed": seed, **answer}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
