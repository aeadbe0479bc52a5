"""Assigns the steps of a plan to queues of their devices: independent steps run on different queues.

    run a · run b of a · run c · run d of b and c      a, b and d on queue 0, c on queue 1, and d waits for c

Work of one queue starts in the order of submission, so that a step that is ready would otherwise wait for the previous
one on the same device. A step waits for the points of operands computed on other queues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from motet.artifact.schema import Step
from motet.graphs.streams import assign_queues
from motet.runtime.device import Device

_WORTH_A_THREAD = 50e-6  # seconds of a step, by its estimate: less than waking another thread takes


def choose_queues(
    steps: Sequence[Step], order: Sequence[int], same: Callable[[int], int], queues: Callable[[int], int]
) -> list[int]:
    """The queue of every step, by its number in `steps`; a transfer has the queue of the first step that reads its
    result, or 0. Steps are submitted in `order`. `same` identifies equal devices, `queues` returns the number of a
    device's queues. If a device has none of the queues that a step names, the step may be on any. A device with several
    queues that runs iterations of an unrolled loop reserves one for transfers of the next iteration."""
    groups: dict[int, list[int]] = {}
    for number in order:
        if steps[number].op == "run":
            groups.setdefault(same(steps[number].device), []).append(number)
    # The steps of one device are adjacent in a bit set, in the order of submission.
    place = {number: index for index, number in enumerate(n for group in groups.values() for n in group)}
    earlier = _needed(steps, order, place)
    chosen = [0] * len(steps)
    first = 0
    for group in groups.values():
        count = queues(steps[group[0]].device)
        if count > 1:
            if any(steps[n].turn for n in group) and not any(steps[n].queues for n in group):
                count -= 1
            there = (1 << count) - 1
            own = (1 << len(group)) - 1
            before = [earlier[number] >> first & own for number in group]
            times = [steps[number].seconds or 1.0 for number in group]
            allowed = [steps[number].queues & there for number in group]
            assigned = assign_queues(before, times, count, allowed)
            for number, queue in zip(group, assigned.queues, strict=True):
                chosen[number] = queue
        first += len(group)
    readers: dict[int, int] = {}
    for number in order:
        for value in steps[number].operands:
            readers.setdefault(value, chosen[number])
    for number, step in enumerate(steps):
        if step.op == "transfer":
            chosen[number] = readers.get(step.results[0], 0)
    return chosen


def run_beside(
    steps: Sequence[Step], order: Sequence[int], works_here: Callable[[int], bool], same: Callable[[int], int]
) -> set[int]:
    """The steps for which a separate thread pays: on devices that block the caller (`works_here`), with a later,
    independent step in `order` on another such device, which could otherwise start only after they end."""
    blocking = [number for number in order if steps[number].op == "run" and works_here(steps[number].device)]
    place = {number: index for index, number in enumerate(blocking)}
    earlier = _needed(steps, order, place)
    found: set[int] = set()
    for index, number in enumerate(blocking):
        seconds = steps[number].seconds
        if (seconds is None or seconds >= _WORTH_A_THREAD) and any(
            same(steps[later].device) != same(steps[number].device) and not earlier[later] >> index & 1
            for later in blocking[index + 1 :]
        ):
            found.add(number)
    return found


def _needed(steps: Sequence[Step], order: Sequence[int], place: dict[int, int]) -> dict[int, int]:
    """For each step, the set of the positions of the steps that must end before it, directly or indirectly."""
    needed: dict[int, int] = {}
    of_value: dict[int, int] = {}  # the steps that must end before a value is available
    for number in order:
        step = steps[number]
        found = 0
        for value in step.operands:
            found |= of_value.get(value, 0)
        needed[number] = found
        made = found | 1 << place[number] if number in place else found
        of_value.update(dict.fromkeys(step.results, made))
    return needed


class Slots:
    """Numbers for the concurrent calls of a plan, the smallest free one for each. Calls use the queues of a device
    shifted by their number: as work of one queue starts in order, the first step of a call would otherwise wait for the
    last step of the previous call, and for that step's waits on other devices. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0  # one bit each

    def take(self) -> int:
        with self._lock:
            free = ~self._taken & (self._taken + 1)
            self._taken |= free
            return free.bit_length() - 1

    def give_back(self, number: int) -> None:
        with self._lock:
            self._taken &= ~(1 << number)

    @property
    def several(self) -> bool:
        """Whether several calls are in progress."""
        return self._taken & (self._taken - 1) != 0

    def crowd(self, device: Device) -> bool:
        """Whether a device has fewer queues than calls in progress, so that some calls share a queue."""
        return self._taken.bit_count() > device.queues


def spare_queues(steps: Sequence[Step], chosen: Sequence[int], devices: Sequence[Device]) -> dict[int, int]:
    """By the id of a device, its last queue if no step uses it."""
    used: dict[int, set[int]] = {}
    for step, queue in zip(steps, chosen, strict=True):
        if step.op == "run":
            used.setdefault(id(devices[step.device]), set()).add(queue)
    spare: dict[int, int] = {}
    for device in devices:
        free = set(range(device.queues)) - used.get(id(device), set())
        if free:
            spare[id(device)] = max(free)
    return spare
