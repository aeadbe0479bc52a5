"""Schedules that a program has as a `transform.named_sequence`, as attributes of the operations that it matches.

    %m = transform.structured.match ops{["linalg.matmul"]} in %root
    %t, %l:2 = transform.structured.tile_using_for %m tile_sizes [4, 16]    →    loop.schedule on the linalg.matmul:
    transform.structured.vectorize %t                                              i, j, k, i#4 unroll, j#16 vectorize

Steps are the primitives of schedules: tiles, interchanges, vectors, unrolled loops. Others are errors that name them.
Loops around a tile are those of the tilings in their order; a vectorised tile has vectors along its last parallel
dimension, and copies along the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import indexing_maps, ir
from motet.compiler.ir.find import all_operations
from motet.compiler.kernels.reader.written_schedules import DIMS, SCHEDULE
from motet.errors import CompileError

_SEQUENCE, _MARK, _ENTRY = "transform.named_sequence", "transform.with_named_sequence", "__transform_main"


@dataclass
class _Loop:
    """A loop over `tile` elements (None: all) of dimension `dim`."""

    dim: int
    tile: int | None
    flag: str = ""
    copies: int | None = None

    def entry(self) -> tuple[str, dict[str, int | None]]:
        label = f"d{self.dim}" if self.tile is None else f"d{self.dim}#{self.tile}"
        return label, {self.flag: self.copies} if self.flag else {}


@dataclass
class _Scheduled:
    """An operation with the loops of its tilings; `order` are its dimensions inside them, and `cover` the elements of
    each that are left (None: all)."""

    operation: ir.Operation
    order: list[int]
    parallel: list[bool]
    cover: dict[int, int | None]
    loops: list[_Loop] = field(default_factory=list[_Loop])
    vectorized: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether a step has changed its loops."""
        return bool(self.loops) or self.vectorized or self.order != sorted(self.order)

    def text(self) -> str:
        """The schedule in the declarative form."""
        inner = [_Loop(d, self.cover[d]) for d in self.order if self.cover[d] != 1]
        if self.vectorized:
            lanes = next((loop for loop in reversed(inner) if self.parallel[loop.dim]), inner[-1] if inner else None)
            for loop in inner:
                loop.flag = "unroll" if loop is not lanes and loop.tile is not None else ""
            if lanes is not None:
                lanes.flag = "vectorize"
                inner = [*(loop for loop in inner if not loop.flag), *(loop for loop in inner if loop.flag == "unroll"),
                         lanes]
        return json.dumps(dict(loop.entry() for loop in (*self.loops, *inner)))


@dataclass(frozen=True)
class _Handle:
    """What a value of a sequence stands for: operations, or the loops number `loop` of them; None for the program."""

    operations: tuple[_Scheduled, ...] | None
    loops: tuple[_Loop, ...] | None = None


def apply_sequences(module: ir.Module) -> None:
    """Replaces the sequence `@__transform_main` of `module`, also in a nested module of sequences alone, next to the
    program or its module, by attributes of the operations that it matches. Raises CompileError for steps that are no
    primitives of schedules."""
    sequences = [each for each in all_operations(module) if each.name == _SEQUENCE]
    if not sequences:
        return
    names = [ir.StringAttr(each.attributes["sym_name"]).value for each in sequences]
    entries = [each for each, name in zip(sequences, names, strict=True) if name == _ENTRY]
    if len(entries) != 1:
        raise CompileError(f"{_SEQUENCE}: {len(entries)} sequences @{_ENTRY}; expected one, with the steps of "
                           f"@{', @'.join(names)}", locate(sequences[0].location))
    found = _Sequence(module).run(entries[0])
    for sequence in sequences:
        parent = sequence.parent
        sequence.erase()
        if parent is not None and parent != module.operation and not len(parent.regions[0].blocks[0].operations):
            parent.erase()
    _unwrap(module)
    if _MARK in module.operation.attributes:
        del module.operation.attributes[_MARK]
    with module.context:
        for each in found:
            names = [ir.StringAttr.get(f"d{d}") for d in range(len(each.parallel))]
            each.operation.attributes[DIMS] = ir.ArrayAttr.get(names)
            each.operation.attributes[SCHEDULE] = ir.StringAttr.get(each.text())


def _unwrap(module: ir.Module) -> None:
    """Moves the content of a module that was next to the sequences' module, and is all of the program, to `module`."""
    rest = list(module.body.operations)
    if len(rest) == 1 and rest[0].operation.name == "builtin.module":
        inner = rest[0].operation
        for each in list(inner.regions[0].blocks[0].operations):
            each.operation.move_before(inner)
        for name in inner.attributes:
            module.operation.attributes[name] = inner.attributes[name]
        inner.erase()


class _Sequence:
    """Runs the steps of a sequence on the structured operations of a module."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.handles: dict[ir.Value, _Handle] = {}
        self.matched: dict[ir.Operation, _Scheduled] = {}
        self.steps: dict[str, Callable[[ir.Operation], None]] = {
            "transform.structured.match": self._match, "transform.structured.interchange": self._interchange,
            "transform.structured.tile_using_for": self._tile_for, "transform.structured.vectorize": self._vectorize,
            "transform.structured.tile_using_forall": self._tile_forall, "transform.loop.unroll": self._unroll,
        }

    def run(self, sequence: ir.Operation) -> list[_Scheduled]:
        block = sequence.regions[0].blocks[0]
        if len(block.arguments) != 1:
            raise CompileError(f"@{_ENTRY} has {len(block.arguments)} arguments; expected one, the program",
                               locate(sequence.location))
        self.handles[block.arguments[0]] = _Handle(None)
        for entry in block.operations:
            step = entry.operation
            if step.name == "transform.yield":
                break
            if step.name not in self.steps:
                self._refuse(step, f"it is no primitive of schedules; expected one of {', '.join(self.steps)}")
            self.steps[step.name](step)
        return [each for each in self.matched.values() if each.is_changed]

    # -- steps -----------------------------------------------------------------------------------------

    def _match(self, step: ir.Operation) -> None:
        if self._handle(step).operations is not None or set(step.attributes) != {"ops"}:
            self._refuse(step, 'expected ops{["linalg.NAME"]} in the argument of the sequence')
        names = [ir.StringAttr(each).value for each in ir.ArrayAttr(step.attributes["ops"])]
        structured = [each for each in all_operations(self.module) if each.name.startswith("linalg.")]
        found = [each for each in structured if each.name in names]
        if not found:
            known = ", ".join(sorted({each.name for each in structured} - {"linalg.yield", "linalg.index"}))
            self._refuse(step, f"the program has no {', '.join(names)}; expected one of {known or 'none: no linalg'}")
        self.handles[step.results[0]] = _Handle(tuple(self._scheduled(step, each) for each in found))

    def _scheduled(self, step: ir.Operation, operation: ir.Operation) -> _Scheduled:
        if operation in self.matched:
            return self.matched[operation]
        if SCHEDULE in operation.attributes:
            self._refuse(step, f"the operation at {locate(operation.location)} has a {SCHEDULE}; expected one schedule")
        maps = indexing_maps(operation)
        if maps is None:
            self._refuse(step, f"{operation.name} has no indexing maps; expected a structured operation")
        plain = [ir.AffineMapAttr(each).value for each in maps]
        written = {str(expression) for expression in plain[-1].results}
        count = plain[0].n_dims
        parallel = [f"d{d}" in written for d in range(count)]
        return self.matched.setdefault(operation, _Scheduled(
            operation, list(range(count)), parallel, dict.fromkeys(range(count))))

    def _interchange(self, step: ir.Operation) -> None:
        order = _numbers(step, "iterator_interchange")
        operations = self._taken(step)
        for each in operations:
            if sorted(order) != list(range(len(each.order))):
                self._refuse(step, f"{order} is no order of {len(each.order)} dimensions")
            each.order = [each.order[position] for position in order]
        self.handles[step.results[0]] = _Handle(operations)

    def _tile_for(self, step: ir.Operation) -> None:
        self._tile(step, "static_sizes", _numbers(step, "interchange"), "")

    def _tile_forall(self, step: ir.Operation) -> None:
        if "static_num_threads" in step.attributes or "mapping" in step.attributes:
            self._refuse(step, "it has num_threads or a mapping; expected tile_sizes alone")
        self._tile(step, "static_tile_sizes", [], "parallelize")

    def _tile(self, step: ir.Operation, name: str, interchange: list[int], flag: str) -> None:
        if len(step.operands) != 1 or any(_numbers(step, "scalable_sizes")):
            self._refuse(step, "its sizes are values or scalable; expected numbers")
        sizes = _numbers(step, name)
        operations = self._taken(step)
        created: list[list[_Loop]] = []
        for each in operations:
            if len(sizes) > len(each.order) or any(size < 0 for size in sizes):
                self._refuse(step, f"sizes {sizes} of {len(each.order)} dimensions")
            if sorted(interchange) != list(range(len(interchange))) or len(interchange) > len(each.order):
                self._refuse(step, f"interchange {interchange} is no order of {len(interchange)} dimensions")
            sizes += [0] * (len(each.order) - len(sizes))  # the others are neither tiled nor moved
            made: list[_Loop] = []
            for position in (*interchange, *range(len(interchange), len(sizes))):
                dim = each.order[position]
                if sizes[position]:
                    made.append(_Loop(dim, each.cover[dim], flag))
                    each.cover[dim] = sizes[position]
            each.loops += made
            created.append(made)
        self.handles[step.results[0]] = _Handle(operations)
        if flag:
            self.handles[step.results[1]] = _Handle(operations, ())
            return
        for number, result in enumerate(list(step.results)[1:]):
            self.handles[result] = _Handle(operations, tuple(made[number] for made in created if number < len(made)))

    def _vectorize(self, step: ir.Operation) -> None:
        if len(step.operands) != 1 or any(_numbers(step, "scalable_sizes")):
            self._refuse(step, "its sizes are values or scalable; expected numbers")
        sizes = _numbers(step, "static_vector_sizes")
        for each in self._taken(step):
            wanted = [each.cover[d] for d in each.order]
            if sizes and any(cover is not None and size < cover for size, cover in zip(sizes, wanted, strict=False)):
                self._refuse(step, f"vector sizes {sizes} are less than the tile's {wanted}")
            each.vectorized = True

    def _unroll(self, step: ir.Operation) -> None:
        loops = self._handle(step).loops
        if not loops:
            self._refuse(step, "expected a loop that tile_using_for made")
        for loop in loops:
            if loop.flag:
                self._refuse(step, "the loop is unrolled already")
            loop.flag, loop.copies = "unroll", ir.IntegerAttr(step.attributes["factor"]).value

    # -- handles ---------------------------------------------------------------------------------------

    def _handle(self, step: ir.Operation) -> _Handle:
        found = self.handles.get(step.operands[0])
        if found is None:
            self._refuse(step, "another step has consumed its handle, or made it of no known operation")
        return found

    def _taken(self, step: ir.Operation) -> tuple[_Scheduled, ...]:
        """The operations of the step's handle, which it consumes."""
        found = self._handle(step)
        if found.operations is None or found.loops is not None:
            self._refuse(step, "expected a handle to structured operations")
        if any(each.vectorized for each in found.operations):
            self._refuse(step, "the operation is vectorised already")
        del self.handles[step.operands[0]]
        return found.operations

    def _refuse(self, step: ir.Operation, why: str) -> NoReturn:
        raise CompileError(f"{step.name}: {why}", locate(step.location))


def _numbers(step: ir.Operation, name: str) -> list[int]:
    if name not in step.attributes:
        return []
    attribute = step.attributes[name]
    return [int(each) for each in (
        ir.DenseBoolArrayAttr(attribute) if name == "scalable_sizes"
        else ir.DenseI64ArrayAttr(attribute)
    )]
