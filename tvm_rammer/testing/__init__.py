"""What tests and benchmarks are made of.

- ``models``: the networks that are measured; ``random_models``, ``random_graphs`` and
  ``random_programs``: others of their shapes; ``compiled_regions``: small ones, planned in any way
- ``reference``, ``numpy_operators``: right answers; ``mutants``: wrong plans; ``optimal``: the best
- ``soak``: plans run for long, under load; ``reload_stress``: libraries change and processes fork
- ``fair_timing`` of ``contenders`` (``timing_process``, ``timing_worker``, ``timing_results``),
  those of others in ``outside``, on ``operator_models``; ``kernel_bench`` of ``kernel_cases``
- ``own_cores``, ``machine_state``, ``other_load``: whether the machine can be trusted
"""

from tvm_rammer.testing.mutants import MUTATIONS
from tvm_rammer.testing.random_graphs import SHAPES, random_graph
from tvm_rammer.testing.random_programs import random_program

__all__ = ["MUTATIONS", "SHAPES", "random_graph", "random_program"]
