"""What a region's kernel is called with."""

from __future__ import annotations

from dataclasses import dataclass

#: An extent that is not checked.
ANY = -1


@dataclass(frozen=True)
class TensorSpec:
    """A tensor in a kernel's signature; its data may begin at any address."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RegionSignature:
    """What a region's kernel is called with, besides constants, table and arena.

    ``num_waves`` is 0 in *program* form, else the number of kernel symbols in *wavefront* form.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    num_waves: int = 0

    def arguments(self) -> tuple[TensorSpec, ...]:
        """All tensors in the order of the call: inputs, constants, table, outputs, arena."""
        memory, table = (TensorSpec((ANY,), dtype) for dtype in ("uint8", "int32"))
        return (*self.inputs, memory, table, *self.outputs, memory)

    def wave_symbols(self) -> tuple[str, ...]:
        """The kernel symbols of the wavefronts."""
        return tuple(f"{self.name}_wave{number}" for number in range(self.num_waves))

    def launches(self) -> tuple[str, ...]:
        """The kernel symbols that a run launches, in order."""
        return self.wave_symbols() or (self.name,)
