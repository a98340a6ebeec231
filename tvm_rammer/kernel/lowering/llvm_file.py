"""Reads what TIR cannot express: files of LLVM IR that lie beside the modules that use them.

TVM links the text into a generated module (``pragma_import_llvm``). In a file ``${name}`` stands
for a value that the program gives, and ``$$`` for a dollar.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


def llvm_file(package: str, name: str, **values: object) -> str:
    """The text of a file, with its values in place.

    Parameters
    ----------
    package : str
        In whose folder the file lies.
    name : str
        Of the file, without ``.ll``.
    **values : object
        All that it has places for.

    Raises
    ------
    KeyError
        Names a place that has no value.
    """
    return template(package, name).substitute(values)


@cache
def template(package: str, name: str) -> Template:
    """A file with its places."""
    return Template((files(package) / f"{name}.ll").read_text(encoding="utf-8"))
