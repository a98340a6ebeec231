"""Kernels and plans, timed, and held against what the machine could do.

- ``measure_kernels``, ``measure_plans``: what a build asks for; ``kernel_timing``: bodies alone
- ``examine``: the vectors in a kernel's code, and its time; ``time_choice``: one of the tuner's
- ``stamps``: when each rTask of a run started and stopped
"""
