"""rKernels on any device: what a PrimFunc computes, and what became of it.

A back end's rule has ``scheduled`` it; ``measured_costs`` keeps what kernels took, on disk. What
rules have in common are questions about a PrimFunc:

- ``nodes``: what statements and expressions consist of, for all that walk them
- ``contraction`` and ``pointwise``: what it computes; ``blocks`` and ``loops``: its statements;
  ``guards``: conditions around what it reads; ``starts``: what its reductions start from
- ``work`` (by ``iterations``): how many operations and bytes; ``footprint``: which bytes a tile
  touches; ``code_size`` and ``inlined_size``: how much code it becomes
- ``attention_blocks``: products, softmax and products as one PrimFunc; ``block_scaled``: products
  with weights of a few bits
- ``replacement``: whether it leaves most of a tensor as it was
- ``cut_operators``: an operator of a part of its places; ``run_time_blocks``: as many places as the
  run finds, as blocks of a number that is known; ``run_time_boxes``: the same of images of any
  height and width; ``merged_axes``: batches and their rows as one axis of places;
  ``call_in_blocks`` and ``call_in_boxes``: functions of all places, by ``kernel_call``;
  ``open_loops``: what cannot be cut; all of them by ``loop_nests``
- ``strides``: the same on tensors whose rows lie apart
- ``split``: from a scheduled PrimFunc to rTask bodies
- ``lowering``: what TVM makes of a body, put right; ``bodies``: as functions on numpy arrays
- ``operands``: what a kernel is measured with; ``roofline``: the least time of its work;
  ``constraints``: whether its code has the vectors that its schedule promises
"""
