"""The space of loop nests of a kernel's main stage on CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.kernels.kernel_facts import dtype_of
from motet.compiler.kernels.loop_names import loop_names, main_stage, stage_name
from motet.compiler.kernels.schedule import KernelSchedule, NestSchedule
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import OptionError, ScheduleError
from motet.lab.space import Point, ScheduleSpace, SpaceParameter

if TYPE_CHECKING:
    from motet.lab.subject import KernelSubject

_TILES = (1, 2, 4, 6, 8, 12, 16)
_BLOCKS = (16, 32, 64, 128, 256)
_LANES = (4, 8, 16, 32, 48, 64)
_PACKED = ("tasks", "rest", "depth")  # in the innermost loop of tasks, of whole dimensions, or of the blocks of a sum


def nest_space(subject: KernelSubject) -> ScheduleSpace | None:
    """Nests of the main stage: blocks, register tiles that are unrolled, vectors along the last parallel dimension,
    an operand that may be packed, and the other stages, each of which may be computed in a loop. None if the stage has
    no two dimensions."""
    kernel = subject.kernel
    main = main_stage(kernel)
    stage = None if main is None else kernel.stages[main]
    if main is None or stage is None or len(stage.sizes) < 2 or any(not isinstance(size, int) for size in stage.sizes):
        return None
    names = loop_names(kernel).dims[main]
    sizes: dict[str, int] = dict(zip(names, (int(size) for size in stage.sizes), strict=True))
    parallel = [name for name, kind in zip(names, stage.iterators, strict=True) if kind == "parallel"]
    reductions = [name for name in names if name not in parallel]
    if len(parallel) < 2:
        return None
    columns = parallel[-1]
    tiled = sorted((name for name in parallel[:-1] if sizes[name] > 1), key=lambda name: -sizes[name]) or [parallel[0]]
    long = [name for name in parallel if sizes[name] > 1] or [parallel[0]]
    pairs = [f"{a} {b}" for a in long for b in long if a != b]
    operands = list(dict.fromkeys(loop_names(kernel).values[access.value] for access in stage.inputs))
    parameters = [
        SpaceParameter("along", tuple(tiled)),
        SpaceParameter("rows", tuple(n for n in _TILES if n <= max(sizes[name] for name in tiled))),
        SpaceParameter("columns", tuple(n for n in _LANES if n <= max(4, sizes[columns]))),
        SpaceParameter("depth", (0, *(n for n in _BLOCKS if reductions and n < sizes[reductions[-1]]))),
        SpaceParameter("outer", (*long, *pairs)),
        SpaceParameter("last", ("rows", "columns")),
        SpaceParameter("pack", ("", *(f"{each} {place}" for each in operands for place in _PACKED))),
        *(SpaceParameter(stage_name(number), ("", *long)) for number in range(len(kernel.stages)) if number != main),
    ]
    build = _NestBuilder(subject, tuple(parallel), tuple(reductions))
    space = ScheduleSpace(tuple(parameters), build)
    return replace(space, starts=tuple(_nest_starts(space, subject)))


@dataclass(frozen=True)
class _NestBuilder:
    """Makes nests of the main stage."""

    subject: KernelSubject
    parallel: tuple[str, ...]
    reductions: tuple[str, ...]

    def __call__(self, point: Point) -> KernelSchedule | None:
        from motet.lab.language import parse_schedule

        try:
            schedule = parse_schedule(self.text(point), self.subject.kernel)
        except (ScheduleError, OptionError):
            return None
        return schedule if isinstance(schedule, NestSchedule) and not self.subject.reasons(schedule) else None

    def text(self, point: Point) -> dict[str, dict[str, str | None]]:
        """The declarative form of a point."""
        columns, rows = self.parallel[-1], str(point["along"])
        outer = str(point["outer"]).split()
        last = rows if point["last"] == "rows" else columns
        rest = [name for name in self.parallel if name not in outer]
        rest = [*(name for name in rest if name != last), *(name for name in rest if name == last)]
        loops: dict[str, dict[str, str | None]] = {name: {"parallelize": None} for name in outer}
        loops |= {name: {} for name in (*rest, *self.reductions)}
        if point["depth"] and self.reductions:
            loops[f"{self.reductions[-1]}#{point['depth']}"] = {}
        if point["rows"] != 1:
            loops[f"{rows}#{point['rows']}"] = {"unroll": None}
        loops[f"{columns}#{point['columns']}"] = {"vectorize": None}
        operand, _, place = str(point["pack"]).partition(" ")
        if operand:
            places = {"tasks": outer[-1], "rest": [*outer, *rest][-1], "depth": [*outer, *rest, *self.reductions][-1]}
            loops[operand] = {"pack": places[place]}
        loops |= {name: {"fuse": str(at)} for name, at in point.items() if name.startswith("stage") and at}
        return loops


def _nest_starts(space: ScheduleSpace, subject: KernelSubject) -> Iterator[Point]:
    """The register tile that uses most registers, with tasks along either of its dimensions."""
    from motet.lab.language.library import register_tile

    target = subject.program.target
    assert isinstance(target, CpuTarget)
    tile = register_tile(target, max(8, ITEM_BITS[dtype_of(subject.kernel)]))
    wanted = {"rows": tile.rows, "columns": tile.vectors * tile.lanes}
    values = {each.name: each.values for each in space.parameters}
    near = {
        name: min(values[name], key=lambda value, most=most: (int(value or 0) > most, abs(int(value or 0) - most)))
        for name, most in wanted.items()
    }
    for outer in values["outer"]:
        point = {**space.first, **near, "outer": outer}
        if " " not in str(outer) and space.schedule(point) is not None:
            yield point
