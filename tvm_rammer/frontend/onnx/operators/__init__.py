"""ONNX operators that TVM's importer lacks or takes for something else, as operators it knows.

=====================  ===============================================================
``operator_node``      what a node says
``attention``          attentions of com.microsoft
``grouped_attention``  the attention that decoders are exported with
``caches``             what decoders remember, in buffers of a fixed length
``heads``              the parts of every attention
``rotary``             positions as angles
``experts``            mixtures of experts of com.microsoft
``functions``          inlines operators that ONNX defines by others
``integers``           products and convolutions of integers
``quantized``          other operators on quantised tensors
``quantized_lstm``     the LSTM of com.microsoft whose products are of integers
``packed_weights``     weights of few bits in blocks with a scale of their own
``fused``              operators of com.microsoft that are some of ONNX's in one
``norms``              normalizations
``reductions``         reductions of nothing, of truth values, and of products
``resizing``           Resize and Upsample
``selections``         operators that choose or reorder elements
``windows``            convolutions and pools
``elementwise_forms``  elementwise operators with attributes that would be ignored
``mel_weights``        the weights of frequencies in bands of the mel scale
``table``              which operator has which rules
``rewrite``            the walk over a model
=====================  ===============================================================
"""

from tvm_rammer.frontend.onnx.operators.rewrite import rewrite_operators

__all__ = ["rewrite_operators"]
