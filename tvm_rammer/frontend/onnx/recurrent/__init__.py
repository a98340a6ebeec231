"""ONNX's operators LSTM, GRU and RNN, unrolled into operators that TVM imports and we co-schedule.

Where the run decides how many steps or sequences there are, they are loops.

================  ===========================================================
``node``          what such a node says
``activations``   the activations that ONNX defines, as operators
``cells``         one step of an LSTM, a GRU, a plain RNN
``unroll``        replaces the nodes of a model
``expressions``   the operators that cells are made of, on elements in a loop
``steps_kernel``  the loop over steps, as many as the run finds
``open_steps``    converts nodes that are such loops
================  ===========================================================
"""

from tvm_rammer.frontend.onnx.recurrent.unroll import unroll_recurrent

__all__ = ["unroll_recurrent"]
