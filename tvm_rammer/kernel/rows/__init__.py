"""Kernels that reduce the rows of a tensor.

``recognise`` turns a PrimFunc into a ``program`` of maps and reductions; ``along`` and ``across``
turn that into loops whose vectors run along a row, or hold neighbouring rows.
"""
