"""Compiler passes; ``pipeline`` has them in order.

- ``prepare``: ``simplify_operators``, ``fold_constants``, ``fold_affine``, ``channels_last``
  with ``layouts``, ``fuse_channel_windows``, ``fuse_normalizations``, ``legalize_operators``,
  ``fuse_operators``; ``remove_dead_code`` after many of them
- ``partition_regions`` with ``eligibility``: what can be planned together; ``merge_products``
- ``co_schedule`` with ``operator_graph``, ``region_calls``, ``concatenations`` and
  ``decide_plan``: regions become kernels
- ``schedule_operators``: what stays outside gets the same rKernels
- ``add_guard``, ``attach_description``: what a library needs besides
- ``pack_parameters``: weights that stay inputs
"""
