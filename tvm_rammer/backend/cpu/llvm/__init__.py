"""What TIR cannot express, as LLVM IR: a file of functions that belong together each.

TVM links the text into a generated module (``pragma_import_llvm``). In a file ``${name}`` stands
for a value that the program gives, and ``$$`` for a dollar.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


def llvm_ir(name: str, **values: object) -> str:
    """The text of a file, with its values in place.

    Parameters
    ----------
    name : str
        Of the file, without ``.ll``.
    **values : object
        All that it has places for.
    """
    return _template(name).substitute(values)


@cache
def _template(name: str) -> Template:
    return Template((files(__name__) / f"{name}.ll").read_text(encoding="utf-8"))
