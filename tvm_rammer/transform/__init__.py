"""Compiler passes; ``pipeline`` has them in order.

- ``lift_branches``: branches of conditionals become functions
- ``merge_products``: products that share a weight become one
- ``prepare``: ``restore_operators``, ``skip_empty_parts``, ``plan_nonzero``, ``plan_unique``,
  ``simplify_operators``,
  ``keep_indices_inside``,
  ``fold_constants``, ``slice_known_places``, ``merge_equal_operators``,
  ``round_parts`` with ``scales``, ``multiply_chosen``, ``multiply_repeated``, ``fold_affine``,
  ``channels_last`` with ``layouts``, ``fuse_channel_windows``, ``separate_pools``,
  ``split_transposed_convolutions``, ``widen_convolutions``, ``taps_first``,
  ``multiply_integers`` with ``integer_products``,
  ``narrow_weights`` with ``scaled_bytes``, ``few_bits`` and ``affine_blocks``,
  ``sum_integers_in_floats``,
  ``fuse_attentions`` with ``attention_chains``,
  ``fuse_normalizations`` with ``normalize``,
  ``fold_transposes``, ``plan_sorting``, ``name_sizes``,
  ``legalize_operators`` with ``running_sums`` and ``scatter_elements``,
  ``reduce_nothing``, ``compute_again``, ``fuse_operators`` up to ``fusion_ends``, behind
  ``bound_sizes``;
  ``remove_dead_code`` after many of them
- ``share_constants``: functions for other shapes have the same weights
- ``partition_regions``: what can be planned together
- ``co_schedule``: regions become kernels
- ``schedule_operators``: what stays outside gets the same rKernels
- ``round_storages``: so that runs of any sizes use the same memory again
- ``start_reductions``: of as many elements as the run finds, which may be none
- ``add_guard``, ``attach_description``: what a library needs besides
- ``pack_parameters``: weights that stay inputs; ``stock_memory``: what TVM alone would need
"""
