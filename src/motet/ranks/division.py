"""Divides the plan of a function among ranks: each gets its steps, and messages in place of values of others.

    run a on @x → 1 · run b of 1 on @y → 2, a result          @x is of rank 0, @y of rank 1
    rank 0: run a → 1 · send 1 to rank 1 · receive 2 from rank 1
    rank 1: receive 1 from rank 0 · run b of 1 → 2 · send 2 to rank 0

A value is sent once to each rank that needs it, from the device that the plan names, in the order of the plan.
Arguments are those of rank 0. Every rank divides the plan in the same way, so that no rank has to tell another one its
part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from motet.artifact.plans import all_steps
from motet.artifact.schema import Plan, Step
from motet.errors import CallError
from motet.ranks.transport import MOST_TAGS

ROOT = 0  # the rank that arguments come from


@dataclass(frozen=True)
class RankPart:
    """The part of one rank. The plan's devices are numbers of the rank's own devices; one of them is the host, which
    holds arguments, results and values in transit."""

    rank: int
    plan: Plan

    @property
    def sends(self) -> list[tuple[int, int]]:
        """The receiver and tag of each message."""
        return [(step.peer, step.tag) for step in self.plan.steps if step.op == "send"]

    @property
    def receives(self) -> list[tuple[int, int]]:
        """The sender and tag of each message."""
        return [(step.peer, step.tag) for step in self.plan.steps if step.op == "receive"]


def divide(
    plan: Plan, ranks: Sequence[int], numbers: Sequence[int], hosts: Sequence[int], takers: Sequence[int], where: str
) -> list[RankPart]:
    """The parts of all ranks. `ranks` and `numbers` have, for each device of the plan, its rank and its number there;
    `hosts` the number of each rank's host. `takers` are the ranks that get the results. Raises CallError for a loop
    over devices of several ranks."""
    division = _Division(plan, ranks, numbers, hosts, where)
    for step in plan.steps:
        division.add(step)
    for taker in takers:
        for value in plan.results:
            division.bring(value, taker)
    return [division.part(rank, rank in takers) for rank in range(len(hosts))]


class _Division:
    """The parts as far as they are made. Transfers do not change a value: all that are transferred from one are the
    same `origin`, and each rank has one number for it."""

    def __init__(
        self, plan: Plan, ranks: Sequence[int], numbers: Sequence[int], hosts: Sequence[int], where: str
    ) -> None:
        self.plan = plan
        self.ranks = ranks
        self.numbers = numbers
        self.hosts = hosts
        self.where = where
        self.steps: list[list[Step]] = [[] for _ in hosts]
        self.origin: dict[int, int] = {value: value for value in plan.inputs}
        self.homes: dict[int, int] = dict.fromkeys(plan.inputs, ROOT)  # the rank of each value
        self.known: list[dict[int, int]] = [{} for _ in hosts]  # by rank and origin, its number there
        self.known[ROOT].update(self.origin)
        self.tags: Counter[tuple[int, int]] = Counter()  # messages so far, by sender and receiver

    def add(self, step: Step) -> None:
        rank = self.ranks[step.device]
        if step.loop is not None:
            others = {self.ranks[inner.device] for plan in (step.loop.condition, step.loop.body)
                      for inner in all_steps(plan)} - {rank}
            if others:
                named = ", ".join(map(str, sorted({rank, *others})))
                raise CallError(f"{self.where}: loop {step.region!r} runs on devices of ranks {named}; expected those "
                                "of one rank: place the whole loop there")
        operands = [self.bring(value, rank) for value in step.operands]
        loop = step.loop
        if loop is not None:
            loop = replace(loop, condition=self._local(loop.condition), body=self._local(loop.body))
        own = replace(step, device=self.numbers[step.device], operands=operands, loop=loop)
        self.steps[rank].append(own)
        if step.op == "transfer":
            self.origin[step.results[0]], self.homes[step.results[0]] = self.origin[step.operands[0]], rank
            return
        for value in step.results:
            self.origin[value], self.homes[value] = value, rank
            self.known[rank][value] = value

    def bring(self, value: int, rank: int) -> int:
        """The number of a value on a rank, to which it is sent if it is not there."""
        origin = self.origin[value]
        known = self.known[rank]
        if origin in known:
            return known[origin]
        source = self.homes[value]  # so that a value goes the way that the plan transfers it
        tag = self.tags[source, rank]
        self.tags[source, rank] += 1
        if tag >= MOST_TAGS:
            raise CallError(f"{self.where}: more than {MOST_TAGS} values move from rank {source} to rank {rank}; "
                            "expected fewer: place operations that read one another's results together")
        self.steps[source].append(
            Step("send", self.hosts[source], [self.known[source][origin]], [], peer=rank, tag=tag)
        )
        self.steps[rank].append(Step("receive", self.hosts[rank], [], [origin], peer=source, tag=tag))
        known[origin] = origin
        return origin

    def part(self, rank: int, takes: bool) -> RankPart:
        """The part of a rank, with the results if it takes them."""
        plan = self.plan
        inputs = plan.inputs if rank == ROOT else []
        results = [self.known[rank][self.origin[value]] for value in plan.results] if takes else []
        return RankPart(rank, replace(
            plan, inputs=list(inputs), results=results, steps=self.steps[rank],
            input_devices=[self._own(device, rank) for device in plan.input_devices][: len(inputs)],
            result_devices=[self._own(device, rank) for device in plan.result_devices][: len(results)],
        ))

    def _own(self, device: int, rank: int) -> int:
        """The number of a device on a rank: of its host for devices of others."""
        return self.numbers[device] if self.ranks[device] == rank else self.hosts[rank]

    def _local(self, plan: Plan) -> Plan:
        """A part of a loop, with this rank's numbers of devices."""
        steps = [
            replace(
                step, device=self.numbers[step.device],
                loop=step.loop and replace(
                    step.loop, condition=self._local(step.loop.condition), body=self._local(step.loop.body)
                ),
            )
            for step in plan.steps
        ]
        own = [self.numbers[device] for device in plan.input_devices]
        return replace(plan, steps=steps, input_devices=own,
                       result_devices=[self.numbers[device] for device in plan.result_devices])
