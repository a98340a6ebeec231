"""What tests and benchmarks are made of.

- ``models``: the networks that are measured; ``reference``: right answers
- ``fair_timing`` of ``contenders`` (``timing_process``, ``timing_worker``, ``timing_results``),
  those of others in ``outside``
- ``other_load``: what others took of the machine meanwhile
"""
