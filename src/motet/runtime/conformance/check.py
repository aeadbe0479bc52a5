"""The sentences in which a check says what it found.

A check is a function of a `DeviceTrial`, its docstring the sentence of the contract that it holds a device to. It
returns where the device keeps to it, raises `Failure` where it does not, and `Skip` where it cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.errors import MotetError

Array = np.ndarray[Any, Any]


class Failure(Exception):
    """A device that does not keep to the contract, in words."""


class Skip(Exception):
    """A check that cannot be made of this device, and why."""


def expect(condition: bool, found: str) -> None:
    """Fails with `found`, what is wrong, unless `condition` holds."""
    if not condition:
        raise Failure(found)


def expect_equal(actual: Array, expected: Array, what: str) -> None:
    """Fails unless two arrays are equal bit for bit (any NaN is a NaN), with the first difference."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise Failure(f"{what}: {_kind(actual)}; expected {_kind(expected)}")
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    if not same.all():
        index = np.unravel_index(int(np.argmin(same)), same.shape)
        place = ", ".join(str(int(number)) for number in index)
        raise Failure(
            f"{what}: {int((~same).sum()):,} of {same.size:,} elements differ; [{place}] is {actual[index]}; "
            f"expected {expected[index]}"
        )


def expect_error(
    kind: type[MotetError], action: Callable[[], object], what: str, mentions: Sequence[str] = ()
) -> MotetError:
    """The error of `kind` that `action` raises; fails if it raises none or another, or does not mention a word."""
    try:
        action()
    except kind as error:
        check_text(error, what, mentions)
        return error
    except Exception as error:
        raise Failure(f"{what}: {type(error).__name__}: {error}; expected {kind.__name__}") from error
    raise Failure(f"{what}: no error; expected {kind.__name__}")


def check_text(error: MotetError, what: str, mentions: Sequence[str]) -> None:
    """Fails unless an error mentions each of some words."""
    for word in mentions:
        expect(word in str(error), f"{what}: the error {str(error)!r} does not mention {word!r}")


def _kind(array: Array) -> str:
    return f"{'x'.join(map(str, array.shape)) or 'scalar'} of {array.dtype}"
