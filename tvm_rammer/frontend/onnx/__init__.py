"""ONNX models.

=====================  ==================================================================
``import_onnx``        the order of the steps from a file or a message to a Relax module
``onnx_file``          reads files; large weights without copies
``protobuf``           where the parts of a message lie in a file
``new_nodes``          appends operators to a graph
``validate``           refuses what contradicts ONNX
``half_floats``        computes in float32 what has 16-bit floats
``fix_inputs``         shapes of inputs, and values of those that are constants
``small_integers``     constants of 2 and 4 bits become bytes
``fold``               computes what shapes and constants decide
``partly_known``       vectors of sizes of which it knows some
``loop_steps``         ``Loop`` and ``Scan``, step by step
``loop_types``         what states and results of a ``Loop`` have in common in all steps
``infer``              what ONNX knows about one node
``names``              what nodes read and write, and what messages call them
``operators``          operators that TVM's importer lacks, as operators it knows
``branches``           TVM's importer, with branches of ``If`` that hold their operators
``run_time_loops``     a ``Loop`` whose steps only the run counts, as functions
``onnx_converters``    what that importer gets wrong, or has no converter for
``random_nodes``       operators that draw random numbers, by the number of the run
``signals``            Fourier transforms
``col2im``             images out of their blocks
``bit_cast``           elements as others of the same bits
``determinant``        determinants of matrices
``linear_attention``   matrices that remember keys and values
``split_sequence``     a tensor in parts whose sizes may be data
``size_values``        what is computed from sizes, as formulas
``open_sizes``         operators whose operands are such formulas
``open_windows``       padding and windows over axes of such sizes
``run_time_sizes``     shapes, where sizes are data at run time
``run_time_resize``    Resize where a size is data at run time
``recurrent``          LSTM, GRU and RNN as operators for each step
=====================  ==================================================================
"""
