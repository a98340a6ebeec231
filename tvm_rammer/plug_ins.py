"""What other packages offer by entry points, and how errors name it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import metadata
from typing import Any

from tvm_rammer.errors import InputError, RammerError


def register_offered(group: str, what: str, register: Callable[[Any], None]) -> None:
    """Register what other packages offer.

    Parameters
    ----------
    group : str
        Of entry points, each of which is a callable that makes what is registered.
    what : str
        What that is, for errors.
    register : callable

    Raises
    ------
    InputError
        Naming the entry point that cannot be loaded, or what ``register`` has against it.
    """
    for entry in metadata.entry_points(group=group):
        try:
            register(entry.load()())
        except RammerError:
            raise
        except Exception as error:
            raise InputError(
                f"the {what} {entry.name!r} of {entry.value} cannot be loaded "
                f"({type(error).__name__}: {error}): mend or uninstall its package"
            ) from error


def home_of(thing: Any) -> str:
    """Where something of a plug-in is defined: the module, and the name there."""
    thing = inspect.unwrap(thing)
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
