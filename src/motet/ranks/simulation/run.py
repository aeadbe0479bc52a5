"""Simulates one call of a plan that was divided among ranks, in the order in which each rank submits its steps.

A rank has one device. It runs its steps in their order, each when its operands are there; messages begin when their
value is there, and share links (`network.py`). Nothing depends on the machine that simulates, or on the order of a
dictionary: equal arguments give equal results.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from motet.artifact.schema import Plan
from motet.ranks.simulation.network import Network, Traffic


@dataclass(frozen=True)
class SimulatedRun:
    """Seconds from the beginning of the call to its end, of work of the busiest device, and for which the busiest link
    was taken; bytes of values on the device with most, at once; and the number and bytes of all messages."""

    makespan: float
    busiest_device: float
    busiest_link: float
    memory: int
    messages: int
    moved: int


def simulate(
    plans: Sequence[Plan], sizes: Mapping[int, int], network: Network, *, noise: float = 0.0, seed: int = 0
) -> SimulatedRun:
    """Simulate the plans of all ranks, in the order of submission; steps take their `seconds`, and values have `sizes`
    bytes. With `noise`, times are multiplied by random factors of this standard deviation, decided by `seed`. Raises
    ValueError if steps wait for one another."""
    return _Simulator(plans, sizes, network, _factors(plans, noise, seed), shared=True).run()


def lower_bound(plans: Sequence[Plan], sizes: Mapping[int, int], network: Network, run: SimulatedRun) -> float:
    """Seconds that no order of these steps and messages takes less than: the longest path of steps and messages that
    wait for no device and no link, the work of the busiest device, or the traffic of the busiest link."""
    path = _Simulator(plans, sizes, network, _factors(plans, 0.0, 0), shared=False).run().makespan
    return max(path, run.busiest_device, run.busiest_link)


def _factors(plans: Sequence[Plan], noise: float, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.maximum(0.1, 1.0 + noise * random.standard_normal(len(plan.steps))) for plan in plans]


class _Simulator:
    """The state of a run. Events are in the order of time, then of rank and place. If not `shared`, devices run all
    steps that are ready at once, and links carry all messages."""

    def __init__(
        self, plans: Sequence[Plan], sizes: Mapping[int, int], network: Network, factors: Sequence[np.ndarray],
        shared: bool,
    ) -> None:
        self.plans = plans
        self.sizes = sizes
        self.network = network
        self.factors = factors
        self.shared = shared
        self.traffic = Traffic(network)
        self.now = 0.0
        self.events: list[tuple[float, int, int, str, int]] = []  # time, rank, place, what, a value or tag
        self.ranks = [_Rank(plan) for plan in plans]
        self.awaited = {
            (step.peer, rank, step.tag): step.results[0]
            for rank, plan in enumerate(plans) for step in plan.steps if step.op == "receive"
        }
        self.messages = self.moved = 0

    def run(self) -> SimulatedRun:
        for rank, plan in enumerate(self.plans):
            for place in [place for place, count in enumerate(self.ranks[rank].missing) if not count]:
                self.ready(rank, place)
            for value in plan.inputs:
                self.there(rank, value)
            self.start(rank)
        while self.events:
            self.now, rank, place, what, number = heapq.heappop(self.events)
            if what == "arrived":
                self.there(rank, number)
            else:
                self.ended(rank, place)
            self.start(rank)
        left = [rank for rank, own in enumerate(self.ranks) if own.left]
        if left:
            raise ValueError(f"ranks {left[:8]} wait for steps that wait for them")
        return SimulatedRun(
            self.now, max((own.worked for own in self.ranks), default=0.0),
            max(self.traffic.taken.values(), default=0.0), max((own.peak for own in self.ranks), default=0),
            self.messages, self.moved,
        )

    def there(self, rank: int, value: int) -> None:
        """A value is on a rank."""
        own = self.ranks[rank]
        own.hold(value, self.sizes[value])
        for place in own.readers.get(value, ()):
            own.missing[place] -= 1
            if not own.missing[place]:
                self.ready(rank, place)

    def ready(self, rank: int, place: int) -> None:
        """All operands of a step are on its rank."""
        step = self.plans[rank].steps[place]
        if step.op == "send":
            size = self.sizes[step.operands[0]]
            if self.shared:
                left, arrives = self.traffic.send(rank, step.peer, size, self.now)
            else:
                arrives = self.now + self.network.alone(rank, step.peer, size)
                left = arrives - self.network.latency(rank, step.peer)
            self.messages += 1
            self.moved += size
            heapq.heappush(self.events, (left, rank, place, "ended", -1))
            value = self.awaited[rank, step.peer, step.tag]
            heapq.heappush(self.events, (arrives, step.peer, step.tag, "arrived", value))
        elif step.op != "receive" and not self.shared:
            self.begin(rank, place)

    def start(self, rank: int) -> None:
        """Run the next step of a device, if it is free and the step's operands are there."""
        own = self.ranks[rank]
        if self.shared and not own.busy and own.queue and not own.missing[own.queue[0]]:
            own.busy = True
            self.begin(rank, own.queue.popleft())

    def begin(self, rank: int, place: int) -> None:
        seconds = (self.plans[rank].steps[place].seconds or 0.0) * float(self.factors[rank][place])
        self.ranks[rank].worked += seconds
        heapq.heappush(self.events, (self.now + seconds, rank, place, "ended", -1))

    def ended(self, rank: int, place: int) -> None:
        """A step or the sending of a message has ended."""
        step, own = self.plans[rank].steps[place], self.ranks[rank]
        if step.op != "send":
            own.busy = False
            for value in step.results:
                self.there(rank, value)
        own.left -= 1
        for value in step.operands:
            own.drop(value, self.sizes[value])


class _Rank:
    """What a rank has done, and what it waits for."""

    def __init__(self, plan: Plan) -> None:
        self.missing = [len(set(step.operands)) for step in plan.steps]
        self.readers: dict[int, list[int]] = {}
        self.uses: dict[int, int] = {}  # that are left of each value
        for place, step in enumerate(plan.steps):
            for value in set(step.operands):
                self.readers.setdefault(value, []).append(place)
            for value in step.operands:
                self.uses[value] = self.uses.get(value, 0) + 1
        for value in plan.results:
            self.uses[value] = self.uses.get(value, 0) + 1
        self.queue = deque(place for place, step in enumerate(plan.steps) if step.op not in ("send", "receive"))
        self.left = sum(step.op != "receive" for step in plan.steps)
        self.busy = False
        self.worked = 0.0
        self.held = self.peak = 0

    def hold(self, value: int, size: int) -> None:
        if self.uses.get(value):
            self.held += size
            self.peak = max(self.peak, self.held)

    def drop(self, value: int, size: int) -> None:
        self.uses[value] -= 1
        if not self.uses[value]:
            self.held -= size
