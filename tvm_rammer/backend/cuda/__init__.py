"""GPUs of NVIDIA: vEUs are thread blocks that stay resident.

- ``cuda_backend``: what the protocol asks
- ``arch_target``: which targets there are, and the vDevice behind each
- ``schedules``: an efficient and a fast schedule of each operator, of dlight's rules and those of
  ``block_tilings``, for products of ``sliced_matmul``, also of groups by ``grouped_products``, for
  few rows ``column_strips``, for few terms ``short_sums`` and, on tensor cores, of
  ``tensor_matmul`` with ``tensor_intrinsics``; before them ``wide_functions``: those of float16;
  ``single_terms``: sums of one; after them ``reducers``: sums that threads share; ``launches``: a
  scheduled PrimFunc cut into its launches; ``lower_launch``: one lowered by itself, with
  ``whole_vectors``; ``thread_body``: as an rTask body; ``made_stages``: all of it, with footprints
  and seconds; ``launch_unplanned``: what is outside of plans
- ``codegen``: tables and kernels
- ``devices``: what an SM of each architecture has, and each GPU; ``occupancy``: how many blocks of
  a kernel an SM runs at the same time
- ``cubin``: CUDA C to machine code by nvcc, and what each kernel takes of registers and memory
- ``block_stamps``: when each rTask of a run started and stopped
- ``operation_counts``: what a block does for a tile; ``sm_time``: how long that takes, and what
  synchronising costs
"""
