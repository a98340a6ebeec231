"""Plans run step by step on the host, each time in another legal interleaving.

Slow, and needs no device: a program that is planned wrongly, or computes wrongly somewhere else,
shows here which rTask read what nobody had written. Nothing is vectorised or packed; bodies are
TVM's own, on numpy's memory.

- ``interpret_backend``: what the protocol asks, and schedules that only cut loops
- ``runs``: from a call to the interpreter
"""

from tvm_rammer.backend.interpret.runs import interleaving

__all__ = ["interleaving"]
