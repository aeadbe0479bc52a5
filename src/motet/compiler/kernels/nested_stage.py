"""Stages with the nests that a schedule gives them, as rules of legality read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from motet.compiler.kernels.kernel import Kernel, Size, Stage
from motet.compiler.kernels.loop_names import LoopNames, loop_names
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.nest_dependences import Dependence, dependences
from motet.compiler.kernels.schedule import Nest, NestLoop, NestRegion, NestSchedule, Reason


@dataclass(frozen=True)
class NestReason(Reason):
    """Why a primitive, `field`, is not legal for a loop or value, `value`."""

    why: str = ""

    def __str__(self) -> str:
        return f"{self.field} of {self.value}: {self.why}; expected {self.allowed}"


@dataclass(frozen=True)
class NestLimits:
    """What a target has: `copies` of a body in one loop, beyond which compiling it takes too long, `scratch`
    bytes of a task's copies, and `partial` bytes of a kernel's partial results."""

    copies: int = 1024
    scratch: int = 64 << 20
    partial: int = 256 << 20


@dataclass(frozen=True)
class NestPath:
    """The loops around one body, outermost first, `outside` of them around all regions; `parts` are the regions."""

    loops: tuple[NestLoop, ...]
    outside: int
    parts: tuple[NestRegion, ...] = ()

    def position(self, label: str) -> int | None:
        """The place of the loop labelled `label`; None if there is none."""
        return next((n for n, loop in enumerate(self.loops) if loop.label == label), None)

    def step(self, position: int) -> int:
        """The elements by which the loop at `position` steps."""
        dim = self.loops[position].dim
        return next((loop.tile for loop in self.loops[position + 1:] if loop.dim == dim), None) or 1


@dataclass(frozen=True)
class NestedStage:
    """A stage with its nest, and what rules ask of it."""

    kernel: Kernel
    stage: Stage
    number: int
    dims: tuple[str, ...]
    names: LoopNames
    nest: Nest
    dependences: tuple[Dependence, ...]
    limits: NestLimits
    microkernels: tuple[Microkernel, ...] = ()

    @property
    def paths(self) -> list[NestPath]:
        return list(paths_of(self.nest))

    def size(self, dim: str) -> Size:
        return self.stage.sizes[self.dims.index(dim)]

    def covered(self, path: NestPath, position: int) -> int | None:
        """The elements that the loop at `position` runs over; None if that depends on a dynamic extent."""
        loop = path.loops[position]
        if loop.tile is not None:
            return loop.tile
        part = next((each for each in reversed(path.parts) if each.dim == loop.dim), None)
        size = self.size(loop.dim)
        if part is None:
            return size if isinstance(size, int) else None
        end = size if part.end is None else part.end
        return max(0, end - part.begin) if isinstance(end, int) else None

    def part(self, path: NestPath, position: int) -> dict[int, int | None]:
        """The elements of each dimension that the loops from `position` on run over."""
        inside: dict[int, int | None] = {}
        for n in range(position, len(path.loops)):
            inside.setdefault(self.dims.index(path.loops[n].dim), self.covered(path, n))
        return inside

    def trips(self, path: NestPath, position: int) -> int | None:
        """The iterations of the loop at `position`."""
        covered = self.covered(path, position)
        return None if covered is None else -(-covered // path.step(position))


def nested_stages(kernel: Kernel, schedule: NestSchedule, limits: NestLimits) -> list[NestedStage]:
    """The stages of `schedule` that have a nest."""
    names = loop_names(kernel)
    return [
        NestedStage(
            kernel, kernel.stages[each.stage], each.stage, names.dims[each.stage], names, each.nest,
            tuple(dependences(kernel, each.stage)), limits, tuple(schedule.microkernels),
        )
        for each in schedule.nests
    ]


def paths_of(nest: Nest, around: NestPath | None = None) -> Iterator[NestPath]:
    """The paths from the outermost loop of `nest` to each body."""
    around = around or NestPath((), 0)
    loops = (*around.loops, *nest.loops)
    outside = around.outside if around.parts else len(loops)
    if not nest.regions:
        yield NestPath(loops, outside, around.parts)
    for region in nest.regions:
        yield from paths_of(region.nest, NestPath(loops, outside, (*around.parts, region)))
