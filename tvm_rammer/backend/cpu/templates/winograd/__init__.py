"""Convolutions by Winograd's minimal filtering: of 3 x 3, and with long filters along one axis.

The algorithm is Winograd's (*Arithmetic Complexity of Computations*, 1980), in two dimensions as
Lavin and Gray have it (*Fast Algorithms for Convolutional Neural Networks*, CVPR 2016).

A filter of seven or eleven taps along an axis is a sum of filters of three taps, each of which
works on the same transformed inputs a tile's step away (Huang et al., *DWM: A Decomposable Winograd
Method*, AAAI 2020, along one axis). The taps along the other axis, and its stride, stay as they
are.

===============  ==================================================================
``matrices``     the transforms F(2x2, 3x3), F(4x4, 3x3), F(6, 3) and F(4, 5)
``accuracy``     how far a transform is from the exact convolution
``channels``     input and output channels, and their groups
``match``        which convolution a PrimFunc is
``tiling``       how a convolution is divided, and how its weights are packed
``cycles``       what steps cost: the parts of the model
``choice``       whether the algorithm pays, and in which tiling: a model in cycles
``transforms``   the transforms of inputs and outputs as statements
``products``     register tiles, and sums of products in one, as statements
``kernel``       the PrimFunc
``rule``         the rule that puts them together
``line_*``       the same along one axis
===============  ==================================================================
"""
