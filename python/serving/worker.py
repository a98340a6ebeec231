"""A process that serves models: lines of JSON say how, lines of JSON say what came of it.

The first line is what :class:`~serving.team.Process` writes; then ``{"way": ..., "clients": ...}``
gets a way of serving ready, and a number of seconds lets it serve.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from bench.die_with_parent import die_with_parent

from serving.served import served
from serving.ways import Children, Reloading, Threads


def main() -> None:
    """Serve until standard input ends."""
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        for reply in _replies():
            print(json.dumps(reply), file=replies, flush=True)
    except Exception:
        print(json.dumps({"error": traceback.format_exc()}), file=replies, flush=True)


def _replies() -> Any:
    requests = map(json.loads, iter(sys.stdin.readline, ""))
    given = next(requests)
    engine, files = given["engine"], [tuple(each) for each in given["files"]]
    # What is loaded again and again is nowhere else.
    reloads = given["reloads"]
    models = [] if reloads else [served(name, engine, *rest) for name, *rest in files]
    yield "loaded"
    for turn, request in enumerate(requests):
        if reloads:
            way: Threads | Children | Reloading = Reloading(files)
        else:
            kind = Children if request["forked"] else Threads
            way = kind(models, request["clients"], turn)
        yield "ready"
        yield way.serve(next(requests)).to_json()


if __name__ == "__main__":
    main()
