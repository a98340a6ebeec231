"""Kernels and plans, timed, and held against what the machine could do.

- ``measure_kernels``, ``measure_plans``: what a build asks for; ``kernel_timing``: bodies alone
- ``stamps``: when each rTask of a run started and stopped
- ``roofline``: the least time of a kernel's work; ``constraints``: whether its code has the vectors
  that its schedule promises
"""
