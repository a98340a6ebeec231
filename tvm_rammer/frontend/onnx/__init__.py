"""ONNX models.

===============  ==================================================================
``import_onnx``  from a file or a message to a Relax module
``onnx_file``    reads files; large weights without copies
``protobuf``     where the parts of a message lie in a file
``value_types``  shapes and element types of a graph's tensors
``nodes``        appends operators to a graph
``recurrent``    LSTM, GRU and RNN as operators for each step
===============  ==================================================================
"""
