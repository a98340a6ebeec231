"""What tests and benchmarks are made of.

- ``models``: the networks that are measured; ``random_models``, ``random_graphs`` and
  ``random_programs``: others of their shapes
- ``reference``: right answers; ``mutants``: wrong plans
- ``fair_timing`` of ``contenders`` (``timing_process``, ``timing_worker``, ``timing_results``),
  those of others in ``outside``
- ``own_cores``, ``other_load``: whether the machine can be trusted
"""

from tvm_rammer.testing.mutants import MUTATIONS
from tvm_rammer.testing.random_graphs import SHAPES, random_graph
from tvm_rammer.testing.random_programs import random_program

__all__ = ["MUTATIONS", "SHAPES", "random_graph", "random_program"]
