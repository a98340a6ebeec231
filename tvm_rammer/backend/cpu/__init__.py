"""Processors, by LLVM and the threads of TVM's pool.

- ``cpu_backend``: what the protocol asks; ``stopwatch`` and ``tuner``: more of it
- ``binding``: a loaded library in this process
- ``templates``: from a PrimFunc to a schedule whose outer loops are tiles
- ``codegen``: from plans to machine code; ``llvm``: what TIR cannot express
- ``timing``: kernels and plans, timed and held against what the machine could do
- ``host``: the machine that this process runs on
"""
