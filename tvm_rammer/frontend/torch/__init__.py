"""Programs of PyTorch.

=========================  ===============================================================
``import_torch``           reads programs and imports them
``exported_program``       makes sizes known, decomposes, refuses by name
``known_values``           what is known decides sizes
``mask_positions``         masks as indices, by the positions where they hold
``importer``               TVM's importer with the converters of this package
``converters``             from PyTorch's operators to Relax, one file for each family
``carried_state``          what it keeps between runs becomes inputs and outputs
``input_formulas``         inputs whose sizes are formulas
``size_guards``            what a program assumes of its open sizes
``size_symbols``           TVM's names for sizes that only the run tells
``numbers_of_views``       sizes that are numbers where PyTorch has formulas
``operator_call``          a call of an operator, as its converter sees it
``quantized_definitions``  operators of quantised programs by others of PyTorch's
``program_loops``          loops whose steps only the run counts
``random_definitions``     operators that draw random numbers, by two of our own
``unpack_weights``         packed weights, and those of 8 bits, become floats
``weights``                which an input is, and new ones
=========================  ===============================================================
"""
