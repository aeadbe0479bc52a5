"""Checks forms of operators, several in one compilation: each is right, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from motet.errors import MotetError, WorkerCrash

AT_ONCE = 12  # forms in one program
Case = TypeVar("Case")


def bundles(found: Sequence[Case]) -> Iterator[Sequence[Case]]:
    for start in range(0, len(found), AT_ONCE):
        yield found[start : start + AT_ONCE]


def check(
    bundles: Iterable[Sequence[Case]], wrong: Callable[[Sequence[Case]], list[str]], name: Callable[[Case], str]
) -> int:
    """How many cases were calculated, all of them right. `wrong` compiles a bundle and says what is wrong with its
    results; it raises MotetError where it is refused, and is then asked for halves. No refusal ends the compiler."""
    texts: list[str] = []
    calculated = 0
    for bundle in bundles:
        more, count = _halved(bundle, wrong, name)
        texts += more
        calculated += count
    assert not texts, "\n".join(texts)
    return calculated


def _halved(
    found: Sequence[Case], wrong: Callable[[Sequence[Case]], list[str]], name: Callable[[Case], str]
) -> tuple[list[str], int]:
    if not found:
        return [], 0
    try:
        return wrong(found), len(found)
    except MotetError as error:
        if len(found) == 1:
            return [f"{name(found[0])}: {error}"] if isinstance(error, WorkerCrash) else [], 0
        middle = len(found) // 2
        first, second = _halved(found[:middle], wrong, name), _halved(found[middle:], wrong, name)
        return first[0] + second[0], first[1] + second[1]
