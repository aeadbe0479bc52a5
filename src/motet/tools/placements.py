"""Compares placements of one program by measurement: over its devices as compiled, and on each of them alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from motet.errors import DeviceError

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.runtime.session import Session


PLAN = "plan"
DRAW = 0.03  # of the time of a call; smaller differences count as noise


@dataclass(frozen=True)
class Repetition:
    """How many calls are measured: in each of `rounds`, `number` calls, or enough for `min_time` seconds in total."""

    rounds: int
    number: int | None
    min_time: float


@dataclass(frozen=True)
class Placed:
    """A placement: the physical device of each of the program's devices, and the seconds of a call, one for each
    sample."""

    devices: dict[str, str]
    number: int
    samples: list[float]

    @property
    def fastest(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def is_single(self) -> bool:
        return len(set(self.devices.values())) == 1


@dataclass(frozen=True)
class Comparison:
    """`plan` is the program over its devices, `single` on each of these alone; `ratio` is the time of the best of these
    relative to the plan; `winner` is `plan`, or a device, empty for a draw. `failed` has the reasons why devices cannot
    run the whole program."""

    function: str
    plan: Placed
    single: list[Placed]
    ratio: float | None
    winner: str
    alone: str = ""  # the only device that the plan uses, if there is only one
    estimated: float | None = None  # the compiler's estimate of the plan in seconds
    failed: dict[str, str] = field(default_factory=dict[str, str])


def compare_placements(
    artifact: Artifact, bindings: Mapping[str, str], name: str, arrays: Sequence[Any], threads: int | None,
    repetition: Repetition, progress: Callable[[str, float], None],
) -> Comparison:
    """Measures function `name` over the devices that `bindings` and the machine give it, and on each of them alone,
    alternately. Raises DeviceError if the program's devices cannot be bound."""
    from motet import runtime

    plan = runtime.load(artifact, devices=dict(bindings) or None, threads=threads)
    sessions: list[tuple[dict[str, str], Session]] = [(_filled(plan), plan)]
    failed: dict[str, str] = {}
    choices = [choice.info.uri for choice in plan.devices]
    try:
        for uri in dict.fromkeys(choices):
            if len(set(sessions[0][0].values())) == 1:
                break  # the plan already runs on one device
            try:
                alone = runtime.load(artifact, devices=uri, threads=threads)
            except DeviceError as error:
                failed[uri] = str(error)
                continue
            sessions.append((dict.fromkeys(_filled(plan), uri), alone))
        placed = _measure([(each, session, name) for each, session in sessions], arrays, repetition, progress)
    finally:
        for _, session in sessions:
            session.close()
    first, *single = placed
    best = min(single, key=lambda each: each.fastest, default=None)
    ratio = None if best is None else best.fastest / first.fastest
    plan_of_it = artifact.manifest.plans[name]
    working = {choices[step.device] for step in plan_of_it.steps if step.op == "run"}
    alone = next(iter(working)) if len(working) == 1 else ""
    return Comparison(name, first, single, ratio, _winner(best, ratio, alone), alone, plan_of_it.seconds, failed)


def _winner(best: Placed | None, ratio: float | None, alone: str) -> str:
    if best is None or ratio is None or abs(ratio - 1) <= DRAW:
        return ""
    device = next(iter(best.devices.values()))
    return "" if device == alone else PLAN if ratio > 1 else device


def comparison_lines(result: Comparison) -> list[str]:
    """The comparison as text."""
    from motet.tools.show import show_seconds, show_table

    rows = [
        [_name(each), show_seconds(each.fastest), show_seconds(each.median), str(each.number),
         f"{each.fastest / result.plan.fastest:.2f}"]
        for each in (result.plan, *result.single)
    ]
    lines = [f"{result.function}: {len(result.plan.samples)} samples of each placement, in turns"]
    lines += show_table(["placement", "min", "median", "calls", "of the plan's"], rows, indent="  ")
    if result.estimated is not None:
        lines.append(f"  the plan was estimated to take {show_seconds(result.estimated)}")
    lines += [f"  all on {uri}: cannot be: {reason}" for uri, reason in result.failed.items()]
    if result.ratio is None:
        lines.append("  there is nothing to compare with: all devices of the plan are one")
    elif not result.winner and result.alone:
        lines.append(f"  neither wins: the plan itself has all on {result.alone}")
    elif not result.winner:
        lines.append(f"  neither wins: the best single device takes {result.ratio:.2f} times as long")
    elif result.winner == PLAN:
        lines.append(f"  the plan wins: the best single device takes {result.ratio:.2f} times as long")
    else:
        lines.append(f"  all on {result.winner} wins: the plan takes {1 / result.ratio:.2f} times as long")
    return lines


def _name(placed: Placed) -> str:
    if placed.is_single:
        return f"all on {next(iter(placed.devices.values()))}"
    return "plan: " + ", ".join(f"@{name} {uri}" for name, uri in placed.devices.items())


def _filled(session: Session) -> dict[str, str]:
    return {choice.device.name: choice.info.uri for choice in session.devices}


def _measure(
    contenders: Sequence[tuple[dict[str, str], Session, str]], arrays: Sequence[Any],
    repetition: Repetition, progress: Callable[[str, float], None],
) -> list[Placed]:
    """Measures every contender in each round, so that disturbances of the machine affect all."""
    numbers: list[int] = []
    for _, session, name in contenders:
        begin = _seconds(session, name, arrays, 1)  # warm-up: prepares for the shapes
        begin = min(begin, _seconds(session, name, arrays, 1))
        share = repetition.min_time / repetition.rounds / len(contenders)
        numbers.append(repetition.number or max(1, round(share / max(begin, 1e-7))))
    samples: list[list[float]] = [[] for _ in contenders]
    for round_ in range(repetition.rounds):
        progress(f"round {round_ + 1} of {repetition.rounds}", round_ / repetition.rounds)
        for index, (_, session, name) in enumerate(contenders):
            samples[index].append(_seconds(session, name, arrays, numbers[index]))
    return [
        Placed(devices, count, taken)
        for (devices, _, _), count, taken in zip(contenders, numbers, samples, strict=True)
    ]


def _seconds(session: Session, name: str, arrays: Sequence[Any], number: int) -> float:
    function = session[name]
    start = time.perf_counter()
    for _ in range(number):
        function(*arrays)
    return (time.perf_counter() - start) / number
