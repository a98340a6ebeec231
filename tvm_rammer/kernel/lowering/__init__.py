"""TVM's own lowering of PrimFuncs for LLVM, put right where it changes what they compute.

- ``lowering_passes``: the whole, with what a back end adds
- ``safe_division``: integers are divided by zero; ``index_divisions``: indices are divided;
  ``compare_booleans``: booleans are compared; ``keep_nan``: NaN passes through maxima
- ``with_bodies``: what these passes have in common; ``llvm_file``: their LLVM IR and others'
"""
