"""checker: proves that a finished schedule computes the same in every order that it allows.

It shows two things, from the schedule alone and independently of the planner:
1. Commands that access the same bytes, at least one of which writes them, are ordered by `after`, and by streams and
   their waits. So every allowed order is equivalent to the order of the list.
2. In the order of the list, buffers of the arena share no byte while both are in use, each is written before it is
   read, and an input that a result is written over is not read afterwards. So every read sees its last writer.

If sizes have symbols, ranges only count as disjoint if one is known to end at or before the beginning of the other for
all values of the symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import apply, at_most
from motet.artifact.schema import Command, Expr, Manifest, Schedule, ScheduleBuffer, Signature
from motet.errors import CompileError


@dataclass(frozen=True)
class Proof:
    """The proof of one schedule: the number of `commands`, of `buffers`, and of `pairs` of buffers that may share
    bytes, whose writes are all ordered against every other use."""

    function: str
    target: str
    commands: int
    buffers: int
    pairs: int


def check_manifest(manifest: Manifest) -> list[Proof]:
    """Checks all schedules of all variants. Raises CompileError."""
    signatures = {signature.name: signature for signature in (*manifest.functions, *manifest.regions.values())}
    proofs: list[Proof] = []
    for variant in manifest.variants:
        for name, schedule in variant.schedules.items():
            pairs = check_schedule(schedule, signatures[name], f"schedule of {name!r} for {variant.target}")
            proofs.append(Proof(name, variant.target, len(schedule.commands), len(schedule.buffers), pairs))
    return proofs


def check_schedule(schedule: Schedule, signature: Signature, where: str = "schedule") -> int:
    """Checks a schedule; returns the number of pairs of buffers (including pairs of equal ones) that may share bytes
    which a command writes.

    Raises CompileError, with the commands and buffers, if the schedule cannot be proven correct."""
    uses = _uses(schedule)
    places = [_Place(_base(buffer, signature), buffer.offset, buffer.bytes) for buffer in schedule.buffers]
    meeting = _meeting(places, uses)
    _check_order(schedule.commands, uses, meeting, [command.after for command in schedule.commands], f"{where}: after")
    _check_order(schedule.commands, uses, meeting, _streams(schedule.commands), f"{where}: streams and waits")
    for a, b in meeting:
        if a != b:
            _check_lives(schedule.buffers, uses, a, b, where)
    for number, buffer in enumerate(schedule.buffers):
        if buffer.kind == "arena" and buffer.bytes != 0 and uses[number].reads_first:
            raise CompileError(f"{where}: command {uses[number].first} reads buffer {number} before anything writes it")
    return len(meeting)


# -- accesses ------------------------------------------------------------------------------------


@dataclass
class _Uses:
    """The commands that access a buffer, and those of them that may write it, as bit sets."""

    all: int = 0
    writes: int = 0
    reads_first: bool = False

    @property
    def first(self) -> int:
        return (self.all & -self.all).bit_length() - 1

    @property
    def last(self) -> int:
        return self.all.bit_length() - 1


def _uses(schedule: Schedule) -> list[_Uses]:
    uses = [_Uses() for _ in schedule.buffers]
    for number, command in enumerate(schedule.commands):
        for position, buffer in enumerate(command.buffers):
            found = uses[buffer]
            only_read = position < (command.reads if command.op == "dispatch" else 1)
            if not found.all >> number & 1 and only_read and not found.writes:
                found.reads_first = True
            found.all |= 1 << number
            if not only_read:
                found.writes |= 1 << number
    return uses


def _base(buffer: ScheduleBuffer, signature: Signature) -> tuple[str, int]:
    """The memory that contains a buffer; a result written to an input is in that input's memory."""
    if buffer.kind == "result":
        target = signature.results[buffer.index].destination
        return ("result", buffer.index) if target is None else ("input", target)
    return (buffer.kind, 0 if buffer.kind == "arena" else buffer.index)


@dataclass(frozen=True)
class _Place:
    base: tuple[str, int]
    offset: Expr
    bytes: Expr


def _meeting(places: Sequence[_Place], uses: Sequence[_Uses]) -> list[tuple[int, int]]:
    """The pairs of buffers that may share bytes and that some command writes, including each with itself."""
    bases: dict[tuple[str, int], list[int]] = {}
    for number, place in enumerate(places):
        if place.bytes != 0 and uses[number].all:
            bases.setdefault(place.base, []).append(number)
    found: list[tuple[int, int]] = []
    for base, numbers in bases.items():
        if base[0] == "parameter" and not any(uses[number].writes for number in numbers):
            continue
        # Sorted by begin: a buffer that begins after the end of another one precedes only such buffers.
        known = [n for n in numbers if isinstance(places[n].offset, int) and isinstance(places[n].bytes, int)]
        known.sort(key=lambda n: int(str(places[n].offset)))
        for position, a in enumerate(known):
            end = int(str(places[a].offset)) + int(str(places[a].bytes))
            found.append((a, a))
            for b in known[position + 1 :]:
                if int(str(places[b].offset)) >= end:
                    break
                found.append((a, b))
        unknown = [number for number in numbers if number not in set(known)]
        for position, a in enumerate(unknown):
            found.append((a, a))
            found += [(a, b) for b in (*unknown[position + 1 :], *known) if not _apart(places[a], places[b])]
    return [(a, b) for a, b in found if uses[a].writes | uses[b].writes]


# -- order ---------------------------------------------------------------------------------------


def _streams(commands: Sequence[Command]) -> list[list[int]]:
    last: dict[int, int] = {}
    found: list[list[int]] = []
    for number, command in enumerate(commands):
        found.append([*command.waits, *([last[command.stream]] if command.stream in last else [])])
        last[command.stream] = number
    return found


def _check_order(
    commands: Sequence[Command], uses: Sequence[_Uses], meeting: Sequence[tuple[int, int]],
    waits: Sequence[Sequence[int]], where: str,
) -> None:
    earlier = [0] * len(commands)
    for number, direct in enumerate(waits):
        for wait in direct:
            earlier[number] |= earlier[wait] | 1 << wait
    later = [0] * len(commands)
    for number in range(len(commands) - 1, -1, -1):
        for wait in waits[number]:
            later[wait] |= later[number] | 1 << number
    for a, b in meeting:
        for writer, other in {(a, b), (b, a)}:
            left = uses[writer].writes
            while left:
                lowest = left & -left
                left ^= lowest
                number = lowest.bit_length() - 1
                unordered = uses[other].all & ~(earlier[number] | later[number] | lowest)
                if unordered:
                    second = (unordered & -unordered).bit_length() - 1
                    raise CompileError(
                        f"{where}: commands {min(number, second)} and {max(number, second)} may run at once, and one"
                        f" writes buffer {writer} while the other uses buffer {other}; expected an order between them"
                    )


def _check_lives(buffers: Sequence[ScheduleBuffer], uses: Sequence[_Uses], a: int, b: int, where: str) -> None:
    """Checks two buffers with common bytes: in the arena, the uses of one end before the other begins; of two views of
    a caller's memory, an input is not read after it was written over."""
    first, second = (a, b) if uses[a].first <= uses[b].first else (b, a)
    if buffers[a].kind == "arena":
        if uses[first].last >= uses[second].first:
            raise CompileError(
                f"{where}: buffers {first} and {second} share bytes of the arena; command {uses[first].last} still"
                f" uses the former when command {uses[second].first} has written the latter"
            )
        return
    inputs = [number for number in (a, b) if buffers[number].kind == "input"]
    results = [number for number in (a, b) if buffers[number].kind == "result"]
    if inputs and results:
        written = uses[results[0]].writes
        if uses[inputs[0]].last > (written & -written).bit_length() - 1:
            raise CompileError(
                f"{where}: command {uses[inputs[0]].last} reads input buffer {inputs[0]} after buffer {results[0]} was"
                " written over it"
            )


# -- sizes with symbols --------------------------------------------------------------------------

Sum = dict[str, tuple[Expr, int]]  # text of a term → the term and its multiplicity


def _terms(expression: Expr, times: int = 1) -> Sum:
    if isinstance(expression, int):
        return {"": (1, expression * times)}
    if isinstance(expression, list) and expression[0] == "+":
        return _add(_terms(expression[1], times), _terms(expression[2], times))
    if isinstance(expression, list) and expression[0] == "*" and isinstance(factor := expression[2], int):
        return _terms(expression[1], times * factor)
    return {str(expression): (expression, times)}


def _add(left: Sum, right: Sum) -> Sum:
    total = dict(left)
    for text, (term, count) in right.items():
        total[text] = (term, count + total.get(text, (term, 0))[1])
    return total


def _apart(a: _Place, b: _Place) -> bool:
    return _ends_before(a, b) or _ends_before(b, a)


def _ends_before(a: _Place, b: _Place) -> bool:
    """Whether `a` ends before `b` begins for all non-negative values of the symbols: no term of the distance is
    negative, and one term, or all together, are at least the size of `a`."""
    distance = _add(_terms(b.offset), _terms(a.offset, -1))
    if any(count < 0 for _, count in distance.values()):
        return False
    return _covers(distance, _terms(a.bytes)) or any(
        _at_least(term, count, a.bytes) for term, count in distance.values() if count
    )


def _at_least(term: Expr, count: int, size: Expr) -> bool:
    """Whether `count` times `term` is at least `size`."""
    if _covers(_terms(term, count), _terms(size)) or at_most(size, apply("*", term, count)):
        return True
    if not isinstance(term, list):
        return False
    operator, left, right = term
    if operator == "max":
        return _at_least(left, count, size) or _at_least(right, count, size)
    if operator == "*" and isinstance(right, int):
        return _at_least(left, count * right, size)
    return operator == "ceildiv" and isinstance(right, int) and count >= right and _at_least(left, count // right, size)


def _covers(total: Sum, part: Sum) -> bool:
    return all(total.get(text, (term, 0))[1] >= count for text, (term, count) in part.items())
