"""A model, from a file or from memory, as a Relax module with its weights inside.

==========================  ===============================================================
``load``                    tells what a model is, and has it imported
``loaded_model``            what comes out
``input_shapes``            the shapes of inputs: what the model says, what the user gives
``several_shapes``          one model for inputs of several shapes
``input_constants``         inputs that the user fixes to a value
``input_states``            inputs that outputs become, from one run to the next
``relax_module``            Relax modules
``deformable_convolution``  convolutions that read at places of the data, for both importers
``fourier``                 Fourier transforms, for both importers
``row_blocks``              rows of groups in blocks, for both importers
``random_numbers``          a generator that counts, for both importers
``run_time_steps``          loops whose steps only the run counts, for both importers
``suppression``             the boxes of detections that are left, for both importers
``part_of_axis``            of a tensor, and what is around, for both importers
``resized_axis``            images of such sizes made larger, for both importers
``ratios``                  floats that are computed of sizes, for both importers
``sizes``                   numbers or formulas, and checks of them, for both importers
``pivots``                  of square matrices, for both importers
``same_bits``               elements as others of the same bits, for both importers
``rounding``                float32 to bfloat16, for both importers
``onnx``                    ONNX models
``torch``                   programs of PyTorch
==========================  ===============================================================
"""

from tvm_rammer.frontend.load import load_model
from tvm_rammer.frontend.loaded_model import LoadedModel

__all__ = ["LoadedModel", "load_model"]
