"""rKernels: from a PrimFunc to scheduled, split and costed rTask bodies, without tuning.

A *rule* schedules a PrimFunc or declines; ``select`` asks them in order:

- ``winograd``: convolutions of 3 x 3 where the algorithm pays
- ``winograd_lines``: those with longer filters, by the same algorithm along one axis
- ``convolution``, ``depthwise``, ``matmul``: outer products in registers (``outer_product``, on
  ``contraction``, ``columns``, ``register_tile``, ``nest`` with ``nest_statements``,
  ``reduction_loops``, ``guards``, ``pack_weights`` and ``prefetch``)
- ``pooling``, and below ``elementwise``: one value per point (``pointwise``, ``pieces``,
  ``tiled_nest``, ``transposition``)
- ``reduction``: softmax, normalisations and all else that reduces rows (``rows``)
- ``elementwise``: what reduces nothing
- ``generic``: what is left

``library`` keeps the results (``scheduled``), ``split`` makes bodies of them with a ``footprint``
each, ``finer`` decides on further candidates. ``work`` (by ``iterations``), ``estimate``, ``costs``
and ``roofline`` say what a kernel takes and could take; ``constraints`` whether its code has the
vectors that its schedule promises, ``code_size`` and ``inlined_size`` how much code it becomes,
``code_budget`` how much it may. ``blocks``, ``loops``,
``repeated_results`` and ``strides`` are what rules have in common: questions about a schedule,
statements, sums that a result repeats, and tensors whose rows lie apart.
"""
