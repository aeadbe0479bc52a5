"""Gives element-wise stages the loops of a split reduction that reads their results, so that both can run together.

    e[i] = exp(x[i]);  s[p] += e[1000 p + j]    →    e[1000 p + j] = exp(x[1000 p + j]);  s[p] += e[1000 p + j]
"""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.verify import checked


def tile_producers(kernel: Kernel) -> Kernel:
    """`kernel` with each element-wise stage that is read by the next one, a reduction, looping as that one does."""
    stages = list(kernel.stages)
    for number in reversed(range(len(stages) - 1)):
        stages[number] = _tiled(stages[number], stages[number + 1]) or stages[number]
    if tuple(stages) == kernel.stages:
        return kernel
    return checked(replace(kernel, stages=tuple(stages)), "tile_producers")


def _tiled(producer: Stage, reader: Stage) -> Stage | None:
    """`producer` with the loops of `reader`; None if it has other points, or the same loops already."""
    if producer.reductions or not reader.reductions or any(s.op == "linalg.index" for s in producer.body):
        return None
    made = {output.value: output for output in producer.outputs}
    read = next((access for access in reader.inputs if access.value in made), None)
    if read is None or read.padding is not None or all(entry.single is not None for entry in read.map):
        return None
    moved: dict[int, Affine] = {}
    for here, there in zip(made[read.value].map, read.map, strict=True):
        if here.single is None or here.single in moved:
            return None
        moved[here.single] = there
    if len(moved) != len(producer.sizes) or not _covers(producer, reader, moved):
        return None

    def over_tiles(access: Access) -> Access:
        return replace(access, map=tuple(entry.substitute(moved) for entry in access.map))

    return replace(
        producer, sizes=reader.sizes, iterators=("parallel",) * len(reader.sizes),
        inputs=tuple(map(over_tiles, producer.inputs)), outputs=tuple(map(over_tiles, producer.outputs)),
        inits=tuple(over_tiles(init) if isinstance(init, Access) else init for init in producer.inits),
    )


def _covers(producer: Stage, reader: Stage, moved: dict[int, Affine]) -> bool:
    """Whether the reader's loops visit every point of the producer's exactly once."""
    used: list[int] = []
    for d, entry in moved.items():
        extent = 1
        if entry.constant:
            return False
        for dim, coefficient in sorted(entry.terms, key=lambda term: term[1]):
            if coefficient != extent:
                return False
            size = reader.sizes[dim]
            used.append(dim)
            if len(entry.terms) == 1:
                if size != producer.sizes[d]:
                    return False
            elif not isinstance(size, int):
                return False
            else:
                extent *= size
        if len(entry.terms) != 1 and extent != producer.sizes[d]:
            return False
    return sorted(used) == list(range(len(reader.sizes)))
