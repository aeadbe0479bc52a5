"""Checks of the kinds of arguments that callers give, with errors of one line."""

from __future__ import annotations

import operator
import os
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from motet.errors import CallError, OptionError


def refuse_kind(
    name: str, given: object, expected: str, error: type[OptionError] | type[CallError] = OptionError
) -> NoReturn:
    """Raises `error`: argument `name` is of a kind that cannot be `expected`."""
    raise error(f"{name}: {brief(given)} given, of type {type(given).__qualname__}; expected {expected}")


def brief(given: object) -> str:
    """`given` as a short text of one line."""
    return " ".join(reprlib.repr(given).split())


def check_kind(
    name: str, given: object, kind: type[Any], expected: str, error: type[OptionError] | type[CallError] = OptionError
) -> None:
    """Raises `error` unless `given` is of `kind`."""
    if not isinstance(given, kind):
        refuse_kind(name, given, expected, error)


def count_of(name: str, given: object) -> int:
    """The number. Raises OptionError unless it is a positive integer."""
    if (count := integer_of(given)) is None:
        refuse_kind(name, given, "a number such as 4")
    if count < 1:
        raise OptionError(f"{name}: {given} given, at least 1 expected")
    return count


def integer_of(given: object) -> int | None:
    """The value of an integer, also of numpy's; None for anything else."""
    try:
        return None if isinstance(given, bool) else operator.index(cast("int", given))
    except TypeError:
        return None


def path_of(name: str, given: object, expected: str = "the path of a file") -> Path:
    """The path. Raises OptionError for anything but texts and paths."""
    path = os.fspath(cast("os.PathLike[Any]", given)) if isinstance(given, os.PathLike) else given
    return Path(path) if isinstance(path, str) else refuse_kind(name, given, expected)


def text_pairs(name: str, given: object, expected: str) -> tuple[tuple[str, str], ...]:
    """The items of a mapping of texts to texts, or none for None. Raises OptionError for anything else."""
    if given is None:
        return ()
    check_kind(name, given, Mapping, expected)
    pairs = tuple(cast("Mapping[Any, Any]", given).items())
    for part in (part for pair in pairs for part in pair):
        check_kind(name, part, str, expected)
    return pairs


def extents_of(name: str, given: object) -> tuple[int, ...]:
    """The extents of a shape; an integer is one extent, as for numpy. Raises CallError for anything else."""
    extents = tuple(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else (given,)
    found = tuple(number for extent in extents if (number := integer_of(extent)) is not None)
    if len(found) < len(extents):
        refuse_kind(name, given, "a tuple of integers", CallError)
    if any(extent < 0 for extent in found):
        raise CallError(f"{name} {'x'.join(map(str, found))}: expected no negative extent")
    return found
