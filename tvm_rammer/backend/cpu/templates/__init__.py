"""From a PrimFunc to a schedule whose outer loops are tiles, without tuning.

A *rule* schedules a PrimFunc or declines; ``select`` asks them in order:

- ``winograd``: convolutions of 3 x 3, and with longer filters along an axis, where it pays
- ``outer_product_rules``: products and convolutions, depthwise too, as outer products in registers
  (``outer_product``, on ``columns``, ``register_tile``, ``nest`` with ``reduction_loops``,
  ``repeated_results``, ``pack_weights``, ``neighbours`` and ``prefetch``)
- ``pooling_rule``, and below ``elementwise_rule``: one value per point (``pieces``, ``tiled_nest``)
- ``reduction_rule``: softmax, normalisations and all else that reduces rows (``rows``)
- ``block_scaled_rule`` with ``block_scaled_kernels``: products with weights of a few bits
- ``attention_rule`` with ``attention_kernel``: attentions of few queries; ``open_attention``
  with ``many_queries`` and ``one_query``: of as many as the run finds
- ``replacement_rule``: what replaces a part of a tensor
- ``elementwise_rule``: what reduces nothing
- ``generic``: what is left

``finer`` decides on further candidates, ``estimate`` says what a body takes, and ``code_budget``
how much code it may be.
"""
