"""Families of operators: what a view colours, marks and counts an rTask as."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tvm_rammer.rprogram.program import RProgram


@dataclass(frozen=True)
class Family:
    """Operators of one kind.

    Attributes
    ----------
    name : str
        For legends.
    colour : str
        ``#rrggbb``, readable on a light and on a dark page.
    terminal : str
        The nearest colour of a terminal's own palette.
    glyph : str
        One ASCII character for a text view.
    words : str
        Regular expression of the words that name its operators.
    """

    name: str
    colour: str
    terminal: str
    glyph: str
    words: str

    def claims(self, name: str) -> bool:
        """Whether a word of ``name`` is one of this family; digits and underscores end a word."""
        return re.search(rf"(?<![a-z])(?:{self.words})(?![a-z])", name.lower()) is not None


OTHER = Family("other", "#8d6e63", "white", "o", "(?!)")

#: The heaviest first: a fused operator belongs to the first family that claims one of its parts.
FAMILIES: tuple[Family, ...] = (
    Family("convolution", "#4269d0", "blue", "C", "[a-z]*conv|[a-z]*convolution"),
    Family("matmul", "#efb118", "yellow", "M", "[a-z]*matmul|[a-z]*gemm|dense|attention|einsum"),
    Family("pool", "#f285b5", "red", "P", "[a-z]*pool|[a-z]*pooling"),
    Family(
        "reduce",
        "#a463f2",
        "magenta",
        "R",
        "[a-z]*softmax|[a-z]*norm|[a-z]*normalization|reduce[a-z]*|mean|sum|prod|max|min|argmax"
        "|argmin|variance|std|cumsum|lrn",
    ),
    Family(
        "elementwise",
        "#3fae8f",
        "green",
        "E",
        "add|sub|subtract|mul|multiply|div|divide|maximum|minimum|pow|power|mod|[a-z]*relu|gelu"
        "|silu|[a-z]*sigmoid|tanh|exp|log|sqrt|rsqrt|erf|abs|neg|negative|sign|floor|ceil|round"
        "|clip|cast|astype|where|select|greater|less|equal|logical|not|and|or|square|[a-z]*elu"
        "|dropout|softplus|elementwise",
    ),
    Family(
        "layout",
        "#9498a0",
        "cyan",
        "L",
        "reshape|transpose|permute|concat|concatenate|split|slice|pad|flatten|squeeze|expand|tile"
        "|repeat|gather|scatter|take|stack|copy|broadcast|layout|pack|full|zeros|ones|identity",
    ),
    OTHER,
)


def family_of(program: RProgram, operator: int) -> Family:
    """The family of operator number ``operator``.

    Its kernel's name says best what runs, then its own name, then the rule that made the kernel.
    """
    kernel = program.kernel_of(operator)
    for name in (kernel.name, program.operators[operator].name, kernel.origin):
        for family in FAMILIES:
            if family.claims(name):
                return family
    return OTHER
