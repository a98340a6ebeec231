"""Kernels that reduce the rows of a tensor.

``recognise`` turns a PrimFunc into a ``row_program`` of maps and reductions; ``along`` and
``across`` (chosen by ``vector_axis``, long rows cut by ``parts``) turn that into loops whose
vectors run along a row, or hold neighbouring rows: of ``vector_loops``, a ``frame`` of local
buffers, and an ``accumulator``.
"""
