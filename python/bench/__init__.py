"""Benchmarks as data: what was measured, where, tables, plots and goals.

- ``machine``, ``result_file``, ``findings``, ``records``, ``corpus_records``: where and how
  something was measured, and the files that hold it; ``fresh_cache``: no model is known in it
- ``race``, ``study``, ``plan_roofline``, ``slow_operators``, ``side_by_side``: ablations
- ``scaling`` with ``graphs``: simulated makespans; ``proofs``: long checks
- ``kernel_bench`` of ``kernel_cases``, with ``numpy_operators`` for right answers;
  ``machine_state``, ``own_cores``: whether the machine is still the one it was, and whether its
  cores are ours; ``optimal``: the best schedule of a small graph
- ``hip_text``: the kernels of the back end for NVIDIA's GPUs, for those of AMD
- ``contenders``: this project's plans and the peers, whose functions are in ``outside`` and in
  ``tvm_rammer.testing``
- ``goals``, ``verdicts``, ``class_gains``: what was wanted, and what came out
- ``peers``, ``ablation_tables``, ``scaling_tables``, ``scaling_before``, ``kernel_page``,
  ``corpus_page``, ``overview``, ``readme_part``, ``pages``, ``plots``, ``markdown``,
  ``console_table``: how it is shown
"""
