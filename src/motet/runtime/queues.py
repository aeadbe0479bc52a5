"""Which queue of its device each step of a plan runs on: steps that need nothing of one another on different ones.

    run a · run b of a · run c · run d of b and c      a, b and d on queue 0, c on queue 1, and d waits for c

Work of one queue begins in the order of its submission, so a step that could begin would else wait for the one before
it on the same device. What a step waits for on other queues are the points of what it reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from motet.artifact.schema import Step
from motet.graphs.streams import assign_queues
from motet.runtime.device import Device

_WORTH_A_THREAD = 50e-6  # seconds of a step, by its estimate: less than another thread takes to wake and to answer


def choose_queues(
    steps: Sequence[Step], order: Sequence[int], same: Callable[[int], int], queues: Callable[[int], int]
) -> list[int]:
    """The queue of every step, by its number in `steps`; a transfer's is that of the first step that reads what it
    moves, else 0. Steps are submitted in `order`. `same` says which devices are one, `queues` how many queues a device
    has. A step whose own queues the device has none of may be on any. A device that runs turns of a loop keeps one
    queue, where it has several, for what is moved for the next turn meanwhile."""
    groups: dict[int, list[int]] = {}
    for number in order:
        if steps[number].op == "run":
            groups.setdefault(same(steps[number].device), []).append(number)
    # The steps of one device lie side by side in a set, in the order of their submission.
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
    """The steps that a thread of their own is worth: on devices that keep the caller waiting (`works_here`), with one
    later in `order` that needs nothing of them, on another such device, which else could not begin before they end."""
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
    """For each step the set of the places of those that have to end before it, directly or not."""
    needed: dict[int, int] = {}
    of_value: dict[int, int] = {}  # what has to end before a value is there
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
    """Numbers of the calls of a plan that are under way, the smallest that is free for each. They use the queues of a
    device shifted by it: work of one queue begins in order, so on one queue the first step of a call would wait for the
    last one of the call before, and for what that waits for on other devices. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0  # a bit for each

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
        """Whether more than one call is under way."""
        return self._taken & (self._taken - 1) != 0

    def crowd(self, device: Device) -> bool:
        """Whether a device has fewer queues than there are calls under way, so that two of them share one."""
        return self._taken.bit_count() > device.queues


def spare_queues(steps: Sequence[Step], chosen: Sequence[int], devices: Sequence[Device]) -> dict[int, int]:
    """By the id of a device, a queue of it that no step has been given, the last one, for those that have one."""
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
