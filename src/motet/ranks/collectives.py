"""Collectives as plans of transfers: what a mesh without a library for them, such as NCCL, executes.

Each function takes one value on each of `devices`, appends steps to a plan, and returns the values that the devices
have afterwards, in the same order. Values are cut into parts (the region `split`), put together (`join`), and added
(`add`). Seconds of these regions are the writer's, by bytes that they touch.

Sources: rings as in Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69(2), 2009; halving and doubling as in Thakur, Rabenseifner, Gropp: "Optimization of collective communication
operations in MPICH", IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.artifact.schema import Plan, Step

__all__ = ["PlanWriter", "all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"]

_RING = 16  # devices up to which a ring, which moves fewest bytes but in most steps, is taken


class PlanWriter:
    """Appends steps to a plan; `sizes` are the bytes of its values. Work on values touches `bandwidth` bytes a
    second."""

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.sizes: list[int] = []
        self.steps: list[Step] = []
        self.inputs: list[int] = []

    def value(self, size: int) -> int:
        """A new value of `size` bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def argument(self, size: int) -> int:
        """A value that the caller gives."""
        self.inputs.append(self.value(size))
        return self.inputs[-1]

    def run(
        self, region: str, device: int, operands: Sequence[int], sizes: Sequence[int], seconds: float | None = None
    ) -> list[int]:
        """The results, of `sizes` bytes, of a region on a device. Without `seconds`, it takes the time to touch its
        operands and results."""
        results = [self.value(size) for size in sizes]
        if seconds is None:
            seconds = (sum(self.sizes[value] for value in operands) + sum(sizes)) / self.bandwidth
        self.steps.append(Step("run", device, list(operands), list(results), region, seconds=seconds))
        return results

    def move(self, value: int, device: int) -> int:
        """The value on another device."""
        moved = self.value(self.sizes[value])
        self.steps.append(Step("transfer", device, [value], [moved], seconds=0.0))
        return moved

    def split(self, value: int, device: int, parts: int) -> list[int]:
        """A value in parts of almost equal bytes, in place."""
        size = self.sizes[value]
        sizes = [size * (number + 1) // parts - size * number // parts for number in range(parts)]
        return self.run("split", device, [value], sizes, seconds=0.0)

    def join(self, parts: Sequence[int], device: int) -> int:
        """Parts as one value, in place: they were received where they belong."""
        return self.run("join", device, parts, [sum(self.sizes[part] for part in parts)], seconds=0.0)[0]

    def add(self, a: int, b: int, device: int) -> int:
        """The sum of two values."""
        return self.run("add", device, [a, b], [self.sizes[a]])[0]

    def plan(self, results: Sequence[int], device: int = 0) -> Plan:
        """The plan so far; the caller's values are on `device`."""
        own = [device] * len(self.inputs), [device] * len(results)
        return Plan(len(self.sizes), list(self.inputs), list(results), *own, list(self.steps))


def reduce_scatter(writer: PlanWriter, values: Sequence[int], devices: Sequence[int]) -> list[int]:
    """The sum of all values in parts: part i on device i. Along a ring, n - 1 steps of a part each."""
    count = len(devices)
    parts = [writer.split(value, device, count) for value, device in zip(values, devices, strict=True)]
    for step in range(count - 1):
        for index in range(count):
            target = (index + 1) % count
            part = (index - step - 1) % count
            moved = writer.move(parts[index][part], devices[target])
            parts[target][part] = writer.add(parts[target][part], moved, devices[target])
    return [parts[index][index] for index in range(count)]


def all_gather(writer: PlanWriter, values: Sequence[int], devices: Sequence[int]) -> list[int]:
    """All values, in order, as one on each device. Along a ring, n - 1 steps of one value each."""
    count = len(devices)
    known: list[list[int]] = [[-1] * count for _ in devices]
    for index, value in enumerate(values):
        known[index][index] = value
    for step in range(count - 1):
        for index in range(count):
            part = (index - step) % count
            target = (index + 1) % count
            known[target][part] = writer.move(known[index][part], devices[target])
    return [writer.join(parts, device) for parts, device in zip(known, devices, strict=True)]


def all_reduce(writer: PlanWriter, values: Sequence[int], devices: Sequence[int]) -> list[int]:
    """The sum of all values on each device: along a ring for few devices, by halving and doubling for more."""
    if len(devices) <= _RING:
        return all_gather(writer, reduce_scatter(writer, values, devices), devices)
    return _halving_doubling(writer, values, devices)


def broadcast(writer: PlanWriter, value: int, devices: Sequence[int]) -> list[int]:
    """The value of the first device on each, along a binomial tree."""
    known = [value]
    while len(known) < len(devices):
        more = devices[len(known) : 2 * len(known)]
        known += [writer.move(known[index], device) for index, device in enumerate(more)]
    return known


def all_to_all(writer: PlanWriter, values: Sequence[int], devices: Sequence[int]) -> list[int]:
    """Part i of all values, in order, on device i: in step k, each device sends to the k-th one after it."""
    count = len(devices)
    parts = [writer.split(value, device, count) for value, device in zip(values, devices, strict=True)]
    known = [[parts[source][target] for source in range(count)] for target in range(count)]
    for step in range(1, count):
        for source in range(count):
            target = (source + step) % count
            known[target][source] = writer.move(parts[source][target], devices[target])
    return [writer.join(own, device) for own, device in zip(known, devices, strict=True)]


def permute(
    writer: PlanWriter, values: Sequence[int], devices: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> list[int | None]:
    """The value of device s on device t for each of `pairs` (s, t); None on devices that get none."""
    found: list[int | None] = [None] * len(devices)
    for source, target in pairs:
        found[target] = values[source] if source == target else writer.move(values[source], devices[target])
    return found


def _halving_doubling(writer: PlanWriter, values: Sequence[int], devices: Sequence[int]) -> list[int]:
    """An all-reduce in 2 log n steps. Devices beyond a power of two add their value to another's first, and get the
    sum last."""
    count = 1 << (len(devices).bit_length() - 1)
    known = list(values[:count])
    for index, value in enumerate(values[count:]):
        known[index] = writer.add(known[index], writer.move(value, devices[index]), devices[index])
    distance = count // 2
    while distance:  # each device keeps one half of what it has, and sends the other to one that keeps that
        halves = [writer.split(value, devices[index], 2) for index, value in enumerate(known)]
        for index in range(count):
            own = int(index & distance != 0)
            moved = writer.move(halves[index ^ distance][own], devices[index])
            known[index] = writer.add(halves[index][own], moved, devices[index])
        distance //= 2
    distance = 1
    while distance < count:  # the reverse
        before = list(known)
        for index in range(count):
            moved = writer.move(before[index ^ distance], devices[index])
            pair = (moved, before[index]) if index & distance else (before[index], moved)
            known[index] = writer.join(pair, devices[index])
        distance *= 2
    return [*known, *(writer.move(known[index], devices[count + index]) for index in range(len(devices) - count))]
