"""Changes how a tensor is divided over a mesh, with the collectives that this needs.

    [a][]  to  [][]      all-gather along dimension 0 over a
    [][]   to  [a][]     each device's slice
    [a][]  to  [][a]     all-to-all
    sums over a, []  to  [a]     reduce-scatter;  to []  all-reduce
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.shardings import DeviceMesh, TensorSharding
from motet.compiler.sharding import collectives
from motet.compiler.sharding.emission import DeviceWriter
from motet.compiler.sharding.rules.rule import shape_of

Parts = list[ir.Value]


class Redivider:
    def __init__(self, writer: DeviceWriter, mesh: DeviceMesh) -> None:
        self.writer = writer
        self.mesh = mesh

    def redivide(
        self, parts: Parts, have: TensorSharding, wanted: TensorSharding, partial: tuple[str, ...], kind: str,
        home: int | None,
    ) -> Parts:
        """The parts divided as `wanted`. `partial` are axes over which they are to be reduced by `kind` first. With a
        `home`, only that device has the tensor, as a whole, and cuts it."""
        if home is not None:
            return self._cut_at_home(parts[home], wanted, home)
        current = [list(names) for names in have.dimensions]
        if partial:
            parts = self._reduce(parts, current, wanted, partial, kind)
        parts = self._exchange(parts, current, wanted)
        for place, names in enumerate(wanted.dimensions):
            keep = _common(current[place], names)
            if left := current[place][keep:]:
                parts = collectives.all_gather(self.writer, parts, self.mesh.groups(left), place)
                current[place] = current[place][:keep]
        for place, names in enumerate(wanted.dimensions):
            if more := list(names[len(current[place]) :]):
                parts = [self._own_slice(part, device, device, place, more) for device, part in enumerate(parts)]
        return parts

    def _cut_at_home(self, value: ir.Value, wanted: TensorSharding, home: int) -> Parts:
        """Devices with equal parts share one slice."""
        made: dict[tuple[int, ...], ir.Value] = {}
        found: Parts = []
        for device in range(self.mesh.devices):
            key = tuple(self.mesh.position(device, names) for names in wanted.dimensions)
            if key not in made:
                shape = shape_of(value) or []
                sizes = wanted.local(shape, self.mesh)
                begin = [number * size for number, size in zip(key, sizes, strict=True)]
                made[key] = self.writer.slice(value, home, begin, sizes)
            found.append(made[key])
        return found

    def _reduce(
        self, parts: Parts, current: list[list[str]], wanted: TensorSharding, partial: tuple[str, ...], kind: str
    ) -> Parts:
        """Scattered, if a dimension is wanted in parts over the same axes; `current` then says so."""
        groups = self.mesh.groups(partial)
        shape = shape_of(parts[0]) or []
        for place, names in enumerate(wanted.dimensions):
            more = names[len(current[place]) :]
            begins = list(names[: len(current[place])]) == current[place]
            if tuple(more) == partial and begins and shape[place] % self.mesh.size(partial) == 0:
                current[place] += list(partial)
                return collectives.reduce_scatter(self.writer, parts, groups, place, kind)
        return collectives.all_reduce(self.writer, parts, groups, kind)

    def _exchange(self, parts: Parts, current: list[list[str]], wanted: TensorSharding) -> Parts:
        """All-to-alls for axes that leave the end of one dimension and are wanted at the end of another."""
        for source, names in enumerate(wanted.dimensions):
            leaving = current[source][_common(current[source], names) :]
            if not leaving:
                continue
            for target, others in enumerate(wanted.dimensions):
                shape = shape_of(parts[0]) or []
                if (
                    target != source and list(others) == [*current[target], *leaving]
                    and shape[target] % self.mesh.size(leaving) == 0
                ):
                    parts = collectives.all_to_all(self.writer, parts, self.mesh.groups(leaving), target, source)
                    current[source] = current[source][: -len(leaving)]
                    current[target] = list(others)
                    break
        return parts

    def _own_slice(self, part: ir.Value, device: int, runs: int, place: int, names: Sequence[str]) -> ir.Value:
        size = (shape_of(part) or [])[place] // self.mesh.size(names)
        begin = size * self.mesh.position(device, names)
        return self.writer.along(part, runs, place, begin, begin + size)


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of first entries that are equal."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
