"""Processors, by LLVM and the threads of TVM's pool.

- ``templates``: from a PrimFunc to scheduled and split rTask bodies, without tuning
- ``codegen``: from plans to machine code
- ``timing``: kernels and plans, timed and held against what the machine could do
- ``host``: the machine that this process runs on
"""
