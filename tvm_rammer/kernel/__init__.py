"""rKernels: from a PrimFunc to scheduled, split and costed rTask bodies, without tuning.

A *rule* schedules a PrimFunc or declines; ``select`` asks them in order:

- ``winograd``: convolutions of 3 x 3 where the algorithm pays
- ``winograd_lines``: those with longer filters, by the same algorithm along one axis
- ``convolution``, ``matmul``, ``depthwise``: outer products in registers (``outer_product``, on
  ``contraction``, ``columns``, ``register_tile``, ``nest``, ``reduction_loops``, ``guards``,
  ``pack_weights`` and ``prefetch``)
- ``pooling``, ``elementwise``: one value per point (``pointwise``, ``pieces``, ``tiled_nest``,
  ``transposition``)
- ``reduction``: softmax, normalisations and all else that reduces rows (``rows``)
- ``generic``: what is left

``library`` keeps the results (``scheduled``), ``split`` makes bodies of them, ``finer`` decides on
further candidates. ``work``, ``estimate``, ``costs`` and ``roofline`` say what a kernel takes and
could take; ``constraints`` whether its code has the vectors that its schedule promises.
"""
