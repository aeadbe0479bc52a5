"""concurrency: how much of the arena is spent on letting commands run at once.

    0 writes a    1 reads a, writes b    2 reads a, writes c    3 reads b    4 reads c
    → 1 and 2 may run at once, so may 3 and 4, if b and c have bytes of their own, and 3 and 2; in program order the
      result of 3 could take the bytes of b

Buffers are placed for an order of the commands that is wide at first: what they read and write, and that commands
which fill a machine anyway follow one another as in the program. Where the arena then is too large, more commands
follow one another, those first that delay the end least (the slack of the critical path), until it fits; the last
resort is the program's order. A small arena is taken as it is. An order that placing has used is kept by the
dependences that the shared bytes make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import evaluate
from motet.artifact.schema import Expr
from motet.compiler.scheduling.memory import BufferLifetime, MemoryPlan, is_static, lower_bound, plan_memory
from motet.errors import CallError, CompileError
from motet.graphs.order import close_order, reduce_order, slacks

GROWTH = 1.25  # of the arena, at most, for the sake of concurrency
# Bytes of an arena that is never too large: the second level of cache of one or a few cores holds it, and no device
# has so little memory that it would matter.
SMALL = 1 << 20
FILLING = 64  # a command with so many tasks leaves no part of a processor idle for long
_PROBES = 8
_MANY = 1000  # commands for which few orders are tried
_NOMINAL = (1, 16, 256)  # of symbols: where the sizes of arenas that have some are compared


@dataclass(frozen=True)
class ArenaPlan:
    """A plan of the arena; for static sizes its lower bound, and the arena of commands one after the other."""

    plan: MemoryPlan
    least: int | None
    serial: int | None


def plan_concurrent(
    before: Sequence[int], times: Sequence[float], fills: Sequence[bool], lives: Sequence[BufferLifetime],
    limit: int | None = None, growth: float = GROWTH,
) -> ArenaPlan:
    """Places buffers whose commands have the dependences `before`; `times` are their seconds, more or less, `fills`
    says which of them leave nothing idle. `limit` is how large the arena may be; without it, it is at most `growth`
    times its lower bound, or what it is without concurrency, or SMALL.

    Raises: CompileError: no plan is as small as the limit; it says how small one is.
    """
    serial = plan_memory(lives)
    least = lower_bound(lives) if is_static(lives) else None
    total = serial.total if isinstance(serial.total, int) else None
    if limit is not None:
        _check_limit(total, limit)
    reduced, closure = reduce_order(before)
    if all(earlier.bit_count() == number for number, earlier in enumerate(closure)):
        return ArenaPlan(serial, least, total)
    free = [number for number in range(len(before)) if not fills[number]]
    slack = slacks(reduced, times)
    free.sort(key=lambda number: (-slack[number], number))
    budget = _Budget(serial.total, least, limit, growth)
    low, high = 0, len(free)  # how many of `free` are chained: `high` fits
    found = serial
    probes = _PROBES if len(before) <= _MANY else 3
    chained = 0
    while low < high and probes:
        probes -= 1
        plan = plan_memory(lives, chain_order(reduced, fills, free[:chained]))
        if budget.holds(plan.total):
            found, high = plan, chained
        else:
            low = chained + 1
        chained = (low + high) // 2
    return ArenaPlan(found, least, total)


def _check_limit(serial: int | None, limit: int) -> None:
    if serial is None:
        raise CompileError(
            f"memory-limit={limit}: the arena of a function with dynamic extents has no size yet;"
            " expected static extents; leave memory-limit out, or fix the extents"
        )
    if serial > limit:
        raise CompileError(
            f"memory-limit={limit}: the arena takes {serial} bytes at least, without any concurrency;"
            f" expected memory-limit={serial} or more"
        )


@dataclass(frozen=True)
class _Budget:
    """What an arena may be: `limit`, or SMALL, or near the `serial` one, and near its lower bound where that one is.
    With symbols it is never small: nobody knows how large they will be."""

    serial: Expr
    least: int | None
    limit: int | None
    growth: float = GROWTH

    def holds(self, arena: Expr) -> bool:
        if isinstance(arena, int) and isinstance(self.serial, int):
            if self.limit is not None:
                return arena <= self.limit
            return arena <= max(SMALL, self.serial, self.growth * (self.serial if self.least is None else self.least))
        names = _names(arena) | _names(self.serial)
        for value in _NOMINAL:
            symbols = dict.fromkeys(names, value)
            try:
                if evaluate(arena, symbols) > self.growth * evaluate(self.serial, symbols):
                    return False
            except CallError:  # nobody calls with such extents
                continue
        return True


def _names(expression: Expr) -> set[str]:
    if isinstance(expression, str):
        return {expression}
    return set() if isinstance(expression, int) else _names(expression[1]) | _names(expression[2])


def chain_order(reduced: Sequence[int], fills: Sequence[bool], more: Sequence[int] = ()) -> list[int]:
    """The closure of an order in which the commands that fill the machine, and `more`, follow one another."""
    chained = {*more, *(number for number, full in enumerate(fills) if full)}
    before = list(reduced)
    last = -1
    for number in range(len(before)):
        if number in chained:
            if last >= 0:
                before[number] |= 1 << last
            last = number
    return close_order(before)
