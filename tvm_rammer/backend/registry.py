"""Which back ends there are, and which of them serves a target.

Other packages add theirs by the entry-point group ``tvm_rammer.backends``, each entry of which is a
callable that makes a :class:`~tvm_rammer.backend.protocol.Backend`, or by
:func:`register_backend`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tvm_rammer.errors import DeviceError, InputError
from tvm_rammer.plug_ins import home_of, register_offered
from tvm_rammer.units import listed

if TYPE_CHECKING:
    from tvm_rammer.backend.protocol import Backend
    from tvm_rammer.machine import VDevice

#: Entry points of other packages.
GROUP = "tvm_rammer.backends"
#: Our own, by module and class; the first one serves where nobody gives a target.
_OWN = {
    "cpu": "tvm_rammer.backend.cpu.cpu_backend:CpuBackend",
    "cuda": "tvm_rammer.backend.cuda.cuda_backend:CudaBackend",
    "interpret": "tvm_rammer.backend.interpret.interpret_backend:InterpretBackend",
}

_registered: dict[str, Backend] = {}


def register_backend(backend: Backend) -> None:
    """Add a back end.

    Parameters
    ----------
    backend : Backend
        With a name of its own, and kinds of targets that no other one serves.

    Raises
    ------
    InputError
        When its name or one of its kinds is taken.
    """
    others = {**_own(), **_registered}
    if backend.name in others:
        raise InputError(
            f"there is a back end {backend.name!r} already, {home_of(others[backend.name])}: "
            f"give {home_of(backend)} another name"
        )
    for other in others.values():
        if shared := [kind for kind in backend.kinds if kind in other.kinds]:
            raise InputError(
                f"the back end {backend.name!r} ({home_of(backend)}) serves targets of kind "
                f"{shared[0]!r}, as {other.name!r} does: take the kind out of its `kinds`, and "
                f"ask for it by name (backend={backend.name!r})"
            )
    _registered[backend.name] = backend


def backends() -> dict[str, Backend]:
    """All back ends by name, our own first."""
    _find_others()
    return {**_own(), **_registered}


def known_names() -> tuple[str, ...]:
    """The names of our own back ends, and of those that are registered so far."""
    return (*_OWN, *_registered)


def backend_named(name: str) -> Backend:
    """The back end of a name.

    Raises
    ------
    InputError
        When there is none.
    """
    if (own := _made(name)) is not None:
        return own
    found = backends()
    if name not in found:
        raise InputError(f"there is no back end {name!r}; choose one of {_quoted(found)}")
    return found[name]


def backend_for(target: Any = None, name: str | None = None) -> Backend:
    """The back end that serves a target.

    Parameters
    ----------
    target : str, dict, Target or None
        What a user may write; this machine's processors if not given.
    name : str, optional
        The back end that was asked for.

    Raises
    ------
    DeviceError
        When the target is none, or nobody serves its kind.
    """
    if name is not None:
        return backend_named(name)
    if target is None:
        return backend_named(next(iter(_OWN)))
    from tvm_rammer.machine.target import make_target

    kind = make_target(target).kind.name
    # Our own first: what is wrong with a plug-in must not stop those who do not use it.
    for known in (_own, backends):
        for backend in (found := known()).values():
            if kind in backend.kinds:
                return backend
    served = sorted(kind for backend in found.values() for kind in backend.kinds)
    raise DeviceError(f"target kind {kind!r} is not supported: use {' or '.join(served)}")


def resolve_target(target: Any = None, backend: str | None = None) -> Any:
    """The checked ``tvm.target.Target`` behind what a user may write.

    Parameters
    ----------
    target : str, dict, Target or None
        A target kind, tag or JSON text, its dictionary, or None for this machine. Note that
        ``"llvm"`` alone is TVM's most general CPU of this architecture, without AVX.
    backend : str, optional
        Name of the back end; the one that serves the target's kind if not given.

    Returns
    -------
    tvm.target.Target
        One that the back end generates code for.

    Raises
    ------
    DeviceError
        When the target is none, or no back end generates code for it.
    InputError
        When there is no back end of that name.
    """
    chosen = backend_for(target, backend)
    if target is None:
        return chosen.resolve(None)
    from tvm_rammer.machine.target import make_target

    return chosen.resolve(make_target(target))


def vdevice_for(
    target: Any = None,
    num_veus: int | None = None,
    *,
    oversubscribe: bool = False,
    backend: str | None = None,
) -> VDevice:
    """Describe the device behind a target; takes milliseconds, as nothing is measured.

    Parameters
    ----------
    target : str, dict, Target or None
        As for :func:`resolve_target`.
    num_veus : int, optional
        vEUs of the plan; the cores of the device if not given.
    oversubscribe : bool
        Allow more vEUs than the device has hardware threads (see :meth:`VDevice.with_veus`).
    backend : str, optional
        Name of the back end.

    Returns
    -------
    VDevice
        Its caches in bytes, its costs in seconds.

    Raises
    ------
    DeviceError, InputError
        As :func:`resolve_target`, or for a number of vEUs that the device does not have.
    """
    chosen = backend_for(target, backend)
    return chosen.vdevice(resolve_target(target, chosen.name), num_veus, oversubscribe)


@cache
def _made(name: str) -> Backend | None:
    """A back end of our own; None if the name is none of ours."""
    if name not in _OWN:
        return None
    module, _, made = _OWN[name].partition(":")
    backend: Backend = getattr(import_module(module), made)()
    return backend


def _own() -> dict[str, Backend]:
    return {name: made for name in _OWN if (made := _made(name)) is not None}


@cache
def _find_others() -> None:
    """Register what other packages offer, once."""
    register_offered(GROUP, "back end", register_backend)


def _quoted(names: Any) -> str:
    return listed(map(repr, names))
