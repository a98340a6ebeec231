"""Edits of JSON documents that keep them JSON: what a person, a program or a disk may do to one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Place = tuple[Any, Any]

NUMBERS = (0, 1, -1, 2, 7, 31, 64, 2**31, 2**32, 2**46, 2**62, 2**63, -(2**63), 10**400)
NUMBERS += (0.5, -0.0, 1e-300, 1e300, 1e308, -1e308)
TEXTS = ("", "x", "arena", "float32", "none", "\x1b[31mred\x1b[0m", "\x00", "\u202e", "a" * 5000)
OTHERS = (None, True, False, [], {}, [[]], {"a": 1}, [1, 2])


def edited(document: Any, rng: Random, most: int = 3) -> tuple[Any, str]:
    """A copy of a document with one to ``most`` edits, and what they are."""
    result, said = copy.deepcopy(document), []
    for _ in range(rng.randint(1, most)):
        places = list(_places(result))
        if places:
            edit = rng.choice(_EDITS)
            container, key = rng.choice(places)
            said.append(f"{edit.__name__.strip('_')} {key!r:.40}")
            edit(container, key, rng)
    return result, ", ".join(said)


def _places(value: Any) -> Iterator[Place]:
    """Everything in a document; entries of long lists count as one of the first and the last."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _delete(container: Any, key: Any, _: Random) -> None:
    del container[key]


def _duplicate(container: Any, key: Any, rng: Random) -> None:
    entry = copy.deepcopy(container[key])
    if isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), entry)
    else:
        container[f"{key}2"] = entry


def _retype(container: Any, key: Any, rng: Random) -> None:
    container[key] = copy.deepcopy(rng.choice(OTHERS + TEXTS + NUMBERS))


def _number(container: Any, key: Any, rng: Random) -> None:
    value = container[key]
    if type(value) in (int, float):
        container[key] = rng.choice((*NUMBERS, value + 1, value - 1, value * 2, -value))


def _text(container: Any, key: Any, rng: Random) -> None:
    if isinstance(container[key], str):
        container[key] = rng.choice(TEXTS)


def _reorder(container: Any, key: Any, rng: Random) -> None:
    value = container[key]
    if isinstance(value, list):
        rng.shuffle(value)
    elif isinstance(container, list):
        other = rng.randrange(len(container))
        container[key], container[other] = container[other], container[key]


def _cut(container: Any, key: Any, rng: Random) -> None:
    value = container[key]
    if isinstance(value, list | str):
        container[key] = value[: rng.randrange(len(value) + 1)]


_EDITS: tuple[Callable[[Any, Any, Random], None], ...] = (
    _delete,
    _duplicate,
    _retype,
    _number,
    _number,
    _text,
    _reorder,
    _reorder,
    _cut,
)
