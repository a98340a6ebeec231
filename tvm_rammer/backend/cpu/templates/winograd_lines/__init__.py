"""Convolutions with long filters by Winograd's minimal filtering along one axis.

A filter of seven or eleven taps along an axis is a sum of filters of three taps, each of which
works on the same transformed inputs a tile's step away (Huang et al., *DWM: A Decomposable Winograd
Method*, AAAI 2020, along one axis). The taps along the other axis, and its stride, stay as they
are.

===============  ===================================================================
``tiling``       the geometry, how the work is divided, and how weights are packed
``accuracy``     how far the algorithm is from the exact convolution
``choice``       whether it pays, along which axis, and in which tiling
``line_inputs``  what the tiles of a line read of its image
``kernel``       the PrimFunc
``rule``         the rule that puts them together
===============  ===================================================================
"""
