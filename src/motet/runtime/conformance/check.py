"""Assertions for conformance checks.

A check is a function of a `DeviceTrial` whose docstring is the sentence of the contract that it checks. It returns if
the device satisfies it, raises `Failure` if it does not, and `Skip` if the check does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motet.errors import MotetError

Array = np.ndarray[Any, Any]


class Failure(Exception):
    """The device violates the contract; the text tells how."""


class Skip(Exception):
    """The check does not apply to this device; the text tells why."""


def expect(condition: bool, found: str) -> None:
    """Fail with the text `found` unless `condition` holds."""
    if not condition:
        raise Failure(found)


def expect_equal(actual: Array, expected: Array, what: str) -> None:
    """Fail with the first difference unless two arrays are equal bit for bit (all NaNs are equal)."""
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
    """The error of `kind` that `action` raises; fails if it raises none or another, or omits a word of `mentions`."""
    try:
        action()
    except kind as error:
        check_text(error, what, mentions)
        return error
    except Exception as error:
        raise Failure(f"{what}: {type(error).__name__}: {error}; expected {kind.__name__}") from error
    raise Failure(f"{what}: no error; expected {kind.__name__}")


def check_text(error: MotetError, what: str, mentions: Sequence[str]) -> None:
    """Fail unless the error's text contains every word of `mentions`."""
    for word in mentions:
        expect(word in str(error), f"{what}: the error {str(error)!r} does not mention {word!r}")


def _kind(array: Array) -> str:
    return f"{'x'.join(map(str, array.shape)) or 'scalar'} of {array.dtype}"
