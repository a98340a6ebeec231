"""What is made of a region: its operators, its constants, its plan.

- ``marks``: which functions of a module are regions, and what is in none; ``eligibility``: why
- ``region_calls``: the calls of a region; ``buffer_parts``, ``slices``, ``concatenations``: what
  lies in other buffers instead of being copied; ``operator_graph``: what a policy
  plans
- ``kernel_library``: a kernel for every distinct PrimFunc, as the back end makes it
- ``compiler``: graphs and kernels of regions, made once
- ``decide_plan``: which plan a region runs
- ``direct_call``: whether a model is one region
- ``library_content``: what a library says about all of it, and the format of that
"""
