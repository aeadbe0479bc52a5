"""concurrency: decides how much of the arena is spent on commands that may run at once.

    0 writes a    1 reads a, writes b    2 reads a, writes c    3 reads b    4 reads c
    → 1 and 2 may run at once, and so may 3 and 4, 3 and 2, if b and c have separate bytes; in program order the
      result of 3 could reuse the bytes of b

Buffers are first placed for a wide order of the commands: their data dependences, and program order for commands that
keep the machine busy anyway. If the arena is then too large, more commands are serialised, first those that delay the
end least (by the slack of the critical path), until it fits; the last resort is program order. A small arena is
accepted as it is. The order that placement relied on is kept by the dependences that shared bytes create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.artifact.expressions import evaluate
from motet.artifact.schema import Expr
from motet.compiler.scheduling.memory import BufferLifetime, MemoryPlan, is_static, lower_bound, plan_memory
from motet.errors import CallError, CompileError
from motet.graphs.order import close_order, reduce_order, slacks

GROWTH = 1.25  # the largest ratio of an arena to its lower bound for the sake of concurrency
# Bytes of an arena that is never too large: it fits in the second-level caches of a few cores, or in that of a GPU, and
# is negligible on every device.
SMALL, SMALL_ON_GPU = 1 << 20, 1 << 24
FILLING = 64  # a command with this number of tasks keeps a processor busy
_PROBES = 8
_MANY = 1000  # commands from which on only few orders are tried
_NOMINAL = (1, 16, 256)  # values of symbols with which the sizes of dynamic arenas are compared


@dataclass(frozen=True)
class ArenaPlan:
    """A plan of the arena; for static sizes also its lower bound, and the size of the serial arena."""

    plan: MemoryPlan
    least: int | None
    serial: int | None


def plan_concurrent(
    before: Sequence[int], times: Sequence[float], fills: Sequence[bool], lives: Sequence[BufferLifetime],
    limit: int | None = None, growth: float = GROWTH, small: int = SMALL,
) -> ArenaPlan:
    """Places buffers whose commands have the dependences `before`; `times` are estimates in seconds, `fills` marks the
    commands that keep a machine busy. `limit` is the largest allowed arena; without it, the arena is at most `growth`
    times its lower bound, or the size without concurrency, or `small`.

    Raises: CompileError: no plan meets the limit; the error has the smallest possible size.
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
    budget = _Budget(serial.total, least, limit, growth, small)
    low, high = 0, len(free)  # how many of `free` are serialised: `high` fits
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
    """The budget of an arena: `limit`, or `small`, or a size near that of the `serial` arena, and near its lower bound
    if that one is. An arena with symbols never counts as small, since their values are unknown."""

    serial: Expr
    least: int | None
    limit: int | None
    growth: float
    small: int

    def holds(self, arena: Expr) -> bool:
        if isinstance(arena, int) and isinstance(self.serial, int):
            if self.limit is not None:
                return arena <= self.limit
            least = self.serial if self.least is None else self.least
            return arena <= max(self.small, self.serial, self.growth * least)
        names = _names(arena) | _names(self.serial)
        for value in _NOMINAL:
            symbols = dict.fromkeys(names, value)
            try:
                if evaluate(arena, symbols) > self.growth * evaluate(self.serial, symbols):
                    return False
            except CallError:  # no valid call has these extents
                continue
        return True


def _names(expression: Expr) -> set[str]:
    if isinstance(expression, str):
        return {expression}
    return set() if isinstance(expression, int) else _names(expression[1]) | _names(expression[2])


def chain_order(reduced: Sequence[int], fills: Sequence[bool], more: Sequence[int] = ()) -> list[int]:
    """The closure of an order in which the commands that keep the machine busy, and `more`, run one after the other."""
    chained = {*more, *(number for number, full in enumerate(fills) if full)}
    before = list(reduced)
    last = -1
    for number in range(len(before)):
        if number in chained:
            if last >= 0:
                before[number] |= 1 << last
            last = number
    return close_order(before)
