"""Load on compiled models: what is counted, who runs them, and the processes that do.

- ``turn``: latencies and counts of a stretch of serving, as data
- ``served``: a model in a process, this project's or ONNX Runtime's, with its right answers
- ``ways``: client threads, forked children, a library that is loaded again and again
- ``worker``: the process that serves; ``reference``: the process that knows the right answers
- ``team``: compiles, starts the processes, and lets them take turns
"""
