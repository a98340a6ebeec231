"""ONNX's operators LSTM, GRU and RNN, unrolled into operators that TVM imports and we co-schedule.

==============  =============================================================
``node``        what such a node says
``activations`` the activations that ONNX defines, as operators
``cells``       one step of an LSTM, a GRU, a plain RNN
``unroll``      replaces the nodes of a model
==============  =============================================================
"""

from tvm_rammer.frontend.onnx.recurrent.unroll import unroll_recurrent

__all__ = ["unroll_recurrent"]
