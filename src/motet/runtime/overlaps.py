"""Memory that a call writes, and reads or writes through another tensor as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from motet.errors import CallError

T = TypeVar("T")
Range = tuple[int, int]  # a tensor's first byte, and the one after its last


def is_shared(reads: Iterable[Range], writes: Iterable[Range]) -> bool:
    """Whether one of `writes` shares memory with another one or with one of `reads`."""
    read_until = written_until = 0
    for begin, end, is_written in sorted([*((*each, False) for each in reads), *((*each, True) for each in writes)]):
        if begin < written_until or (is_written and begin < read_until):
            return True
        if is_written:
            written_until = max(written_until, end)
        else:
            read_until = max(read_until, end)
    return False


def check_overlaps(
    name: str, destinations: Sequence[int | None], given: Sequence[object], inputs: Sequence[T], results: Sequence[T],
    overlap: Callable[[T, T], bool],
) -> None:
    """Raises CallError for a call of function `name` that writes memory which it also reads or writes through another
    tensor. A result is in the argument `destinations` states, else in what is `given`; those with neither are new."""
    for index, (own, value) in enumerate(zip(destinations, given, strict=True)):
        if own is None and value is None:
            continue
        others = [(f"argument {i}", item) for i, item in enumerate(inputs) if i != own]
        others += [(f"result {i}", item) for i, item in enumerate(results[:index])]
        for other, item in others:
            if overlap(results[index], item):
                place = f"out for result {index}" if own is None else f"argument {own}, a destination,"
                raise CallError(f"{name}: {place} shares memory with {other}; give memory of its own")
