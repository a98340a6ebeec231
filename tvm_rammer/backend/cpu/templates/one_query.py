"""One query of an attention of open sizes, as if there were no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_rammer.kernel.attention_blocks import AttentionFunc, infinite


@dataclass(frozen=True)
class OneQuery:
    """An attention of one query of a batch, as :class:`AttentionKernel` takes one.

    Attributes
    ----------
    func : AttentionFunc
    row : PrimExpr
        Which query it is.
    bounded : bool
        Whether it is asked for places that there are none of: what is behind the last one is read
        as that one, and hidden.
    """

    func: AttentionFunc
    row: Any
    bounded: bool = False
    rows: int = 1

    @property
    def batches(self) -> Any:
        return self.func.batches

    @property
    def places(self) -> Any:
        return self.func.places

    @property
    def terms(self) -> int:
        return self.func.terms

    @property
    def columns(self) -> int:
        return self.func.columns

    def behind(self) -> OneQuery:
        """The same, asked for places behind the last one too."""
        return OneQuery(self.func, self.row, True)

    def query(self, batch: Any, row: Any, term: Any) -> Any:
        """As :meth:`.AttentionFunc.query`."""
        return self.func.query(batch, self.row, term)

    def key(self, batch: Any, place: Any, term: Any) -> Any:
        """As :meth:`.AttentionFunc.key`."""
        return self.func.key(batch, self._there(place), term)

    def value(self, batch: Any, place: Any, column: Any) -> Any:
        """As :meth:`.AttentionFunc.value`."""
        return self.func.value(batch, self._there(place), column)

    def score(self, product: Any, batch: Any, row: Any, place: Any) -> Any:
        """As :meth:`.AttentionFunc.score`."""
        score = self.func.score(product, batch, self.row, self._there(place))
        return tirx.Select(place < self.places, score, infinite()) if self.bounded else score

    def result(self, total: Any, of_weights: Any, largest: Any, places: Any) -> Any:
        """As :meth:`.AttentionFunc.result`."""
        batch, _, column = places
        return self.func.result(total, of_weights, largest, (batch, self.row, column))

    def _there(self, place: Any) -> Any:
        return tirx.min(place, self.places - 1) if self.bounded else place
