"""Everything about GPUs of NVIDIA.

- ``devices``: what an SM of each architecture has, and each GPU; ``occupancy``: how many blocks of
  a kernel an SM runs at the same time
- ``cubin``: CUDA C to machine code by nvcc, and what each kernel takes of registers and memory;
  ``sass``: the instructions that it issues
- ``operation_counts``: what a block does for a tile; ``sm_time``: how long that takes, and what
  synchronising costs
"""
