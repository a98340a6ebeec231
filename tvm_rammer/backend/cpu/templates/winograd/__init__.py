"""Convolutions of 3 x 3 by Winograd's minimal filtering.

===============  ==================================================================
``matrices``     the transforms F(2x2, 3x3), F(4x4, 3x3), F(6, 3) and F(4, 5)
``accuracy``     how far a transform is from the exact convolution
``channels``     input and output channels, and their groups
``match``        which convolution a PrimFunc is
``tiling``       how a convolution is divided, and how its weights are packed
``cycles``       what steps cost: the parts of the model
``choice``       whether the algorithm pays, and in which tiling: a model in cycles
``transforms``   the transforms of inputs and outputs as statements
``tile_inputs``  what a tile reads of its image: all of it, or what there is
``products``     register tiles, and sums of products in one, as statements
``kernel``       the PrimFunc
``rule``         the rule that puts them together
===============  ==================================================================
"""
