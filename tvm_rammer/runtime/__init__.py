"""Compiled models: building, saving, loading and running them.

- ``build``: from a model to a ``library``, which says by its ``description`` what it is
- ``check``: compares a library with what ONNX Runtime (``onnx_reference``) or PyTorch computes
- ``graph_module``: an instance that runs, with a ``bound_function`` for each of its shapes;
  ``profile``: when its rTasks really ran
- ``report``, ``kernel_report``: what was decided, what kernels reach
- ``loading``: from a file to a library, by its ``checksum`` and from a ``private_copy`` in memory
- ``link``: from an executable to a file, its parts side by side
- ``shared_object``: what is wrong with a file, told before the system's loader dies of it
"""
