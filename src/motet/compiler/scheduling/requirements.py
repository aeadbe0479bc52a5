"""requirements: the assumptions of a function's operations on extents, as constraints of its calls.

    %c = tensor.concat dim(0) %x, %y loc("join")    →    Concat "join": axis 1 of inputs 0 and 1 must be equal

Sources of constraints are loops over several tensors, slices and windows that must be in bounds, splits of dimensions,
casts, sizes that must not be negative, and assertions about extents. Those that types do not prove are checked once for
each new combination of extents, before the call runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from motet.artifact.expressions import apply, at_most, product
from motet.artifact.schema import Constraint, Expr
from motet.compiler.ir._mlir import indexing_maps, ir
from motet.compiler.ir.attributes import kept_axes, reassociation, static_or_none
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.source_names import source_name
from motet.compiler.ir.translate import source_location
from motet.compiler.scheduling.assertions import read_assertion
from motet.compiler.scheduling.ranges import Range, Ranges, at_least_one, of_expression, position_in
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError

_BEYOND = "what is taken along axis {axis} of {what} must be at most what there is"
_SIZED = ("tensor.empty", "tensor.generate", "tensor.splat")


def requirements(module: ir.Module) -> dict[str, list[Constraint]]:
    """The constraints of every public function with dynamic extents, by name. Assertions among them are erased.

    Raises CompileError for an operation whose extents fit in no call.
    """
    return {
        symbol_name(function): _Requirements(function).run() for function in public_functions(module)
        if not all(argument.type.has_static_shape for argument in function.regions[0].blocks[0].arguments)
    }


class _Requirements:
    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        self.shapes = Shapes(function)
        self.found: dict[tuple[str, str, str], Constraint] = {}
        self.settled: list[ir.Operation] = []  # assertions
        self.live: Expr = 1  # 0 in calls in which the enclosing loops have no iterations

    def run(self) -> list[Constraint]:
        for left, right in self.shapes.equalities:
            self._add(Constraint(left, right, text=f"extents that are both called {right} must be equal"), None)
        self._read_block(self.function.regions[0].blocks[0], certain=True)
        for assertion in self.settled:
            assertion.erase()
        return list(self.found.values())

    def _read_block(self, block: ir.Block, certain: bool) -> None:
        """Reads a block; `certain` if every call executes it."""
        for entry in block.operations:
            operation = entry.operation
            self.shapes.note(operation)
            self._read(operation, certain)
            if operation.name in ("scf.for", "scf.while"):
                before = self.live
                if operation.name == "scf.for":
                    self.live = apply("*", before, Ranges(self.shapes).turns(operation))
                for region in operation.regions:
                    self._hand_on(operation, region.blocks[0])
                    self._read_block(region.blocks[0], certain=False)
                self.live = before

    def _hand_on(self, loop: ir.Operation, block: ir.Block) -> None:
        """Adds the constraint that a loop's carried values keep the extents of its results."""
        first = 1 if loop.name == "scf.for" else 0
        for argument, result in zip(list(block.arguments)[first:], loop.results, strict=False):
            if result in self.shapes.tensors and argument.type == result.type:
                self.shapes.tensors[argument] = self.shapes.tensors[result]

    def _read(self, operation: ir.Operation, certain: bool) -> None:
        name = operation.name
        origin = operation if certain else None
        said = source_name(operation)
        wanted: list[Constraint] = []
        if name == "cf.assert":
            wanted = self._of_assertion(operation)
        elif name.startswith("linalg."):
            wanted = self._of_loops(operation)
        elif name in ("tensor.extract_slice", "tensor.insert_slice"):
            wanted = self._of_slice(operation)
        elif name == "tensor.concat":
            wanted = self._of_concat(operation)
        elif name in ("tensor.cast", "tensor.collapse_shape"):
            wanted = self._of_type(operation)
        elif name == "tensor.expand_shape":
            wanted = self._of_split(operation)
        elif name == "tensor.reshape":
            wanted = self._of_reshape(operation)
        elif name == "tm_tensor.scatter":
            wanted = self._of_scatter(operation)
        elif name == "tensor.extract":
            wanted = self._of_element(operation, Ranges(self.shapes))
        elif name.startswith(("arith.", "math.", "tm_tensor.sort")):
            wanted = self._of_elements(operation)
        if name in _SIZED or name == "tensor.pad":
            wanted += self._of_sizes(operation)
        for constraint in wanted:
            self._add(constraint, origin, said)

    def _add(self, constraint: Constraint, origin: ir.Operation | None, said: str = "") -> None:
        """Adds a constraint unless it is proven. Raises CompileError if no call satisfies it and every call needs
        it."""
        left, right, relation = constraint.left, constraint.right, constraint.relation
        if left == right or (relation == "at-most" and at_most(left, right)):
            return
        if relation in ("stretch", "broadcast") and (left == 1 or (relation == "broadcast" and right == 1)):
            return
        if relation == "multiple" and right == 1:
            return
        text = f"{said}: {constraint.text}" if said else constraint.text
        if origin is not None and isinstance(left, int) and isinstance(right, int):
            if relation == "multiple" and right and left % right == 0:
                return
            raise CompileError(f"{text}: {left} and {right}", source_location(origin))
        least = min((side for side in (left, right) if isinstance(side, int)), default=0)
        if least < 0 and relation in ("equal", "at-most"):  # manifests have no sides below 0
            left, right = apply("-", left, least), apply("-", right, least)
        key = (relation, *sorted((str(left), str(right)))) if relation == "equal" else (relation, str(left), str(right))
        self.found.setdefault((key[0], key[1], key[2]), Constraint(left, right, relation, text))

    # -- assertions

    def _of_assertion(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints of an assertion about extents; assertions about data are kept."""
        read = read_assertion(operation.operands[0], self.shapes)
        if read is None:
            return []
        self.settled.append(operation)
        text = ir.StringAttr(operation.attributes["msg"]).value.rstrip(".")
        return [structs.replace(constraint, text=text) for constraint in read]

    # -- loops

    def _of_loops(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints of operands of common loops, windows, and elements that bodies extract by loop position."""
        attributes = indexing_maps(operation)
        if attributes is None:
            return self._of_named(operation)
        maps = [ir.AffineMapAttr(attribute).value for attribute in attributes]
        found: list[Constraint] = []
        loops: dict[int, tuple[Expr, int, int]] = {}
        for number, (operand, map_) in enumerate(zip(operation.operands, maps, strict=False)):
            for axis, (expression, extent) in enumerate(
                zip(map_.results, self.shapes.tensors.get(operand, ()), strict=False)
            ):
                if isinstance(expression, ir.AffineDimExpr):
                    loop = ir.AffineDimExpr(expression).position
                    known, other, place = loops.setdefault(loop, (extent, number, axis))
                    found.append(Constraint(known, extent, text=_together(other, place, number, axis)))
        rank = maps[0].n_dims if maps else 0
        if len(loops) < rank:
            return found
        extents = [loops[loop][0] for loop in range(rank)]
        positions = [position_in(loop, extent) for loop, extent in enumerate(extents)]
        alive = product(map(at_least_one, extents))
        for number, (operand, map_) in enumerate(zip(operation.operands, maps, strict=False)):
            for axis, (expression, extent) in enumerate(
                zip(map_.results, self.shapes.tensors.get(operand, ()), strict=False)
            ):
                if not isinstance(expression, ir.AffineDimExpr):
                    taken = of_expression(expression, positions)
                    found += self._within(taken, extent, axis, f"operand {number}", alive)
        if operation.name == "linalg.generic":
            ranges = Ranges(self.shapes, tuple(extents))
            for entry in operation.regions[0].blocks[0].operations:
                if entry.operation.name == "tensor.extract":
                    found += self._of_element(entry.operation, ranges, alive)
        return found

    def _of_named(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints of an operation without maps, such as softmax, whose result has the extents of its
        operand."""
        return self._of_elements(operation) if operation.name == "linalg.softmax" else []

    def _of_elements(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints of an element-wise operation: all tensors have equal extents."""
        found: list[Constraint] = []
        first: tuple[int, Sequence[Expr]] | None = None
        for number, operand in enumerate(operation.operands):
            shape = self.shapes.tensors.get(operand)
            if shape is None:
                continue
            if first is None:
                first = number, shape
            for axis, (extent, other) in enumerate(zip(shape, first[1], strict=False)):
                found.append(Constraint(other, extent, text=_together(first[0], axis, number, axis)))
        return found

    def _of_element(self, extract: ir.Operation, ranges: Ranges, alive: Expr = 1) -> list[Constraint]:
        source, *indices = extract.operands
        found: list[Constraint] = []
        for axis, (index, extent) in enumerate(zip(indices, self.shapes.tensors.get(source, ()), strict=False)):
            found += self._within(ranges.of(index), extent, axis, "its source", alive)
        return found

    def _within(
        self, taken: Range | None, extent: Expr, axis: int, what: str, alive: Expr = 1
    ) -> list[Constraint]:
        """The constraint that positions along an axis are in bounds, in calls in which any exist: `alive` is 0 in
        others. Ranges that are not exact give no constraint: the code checks such positions itself."""
        if taken is None or not taken.exact:
            return []
        found: list[Constraint] = []
        alive = apply("*", self.live, alive)
        if not taken.is_natural:
            text = f"what is taken along axis {axis} of {what} must not begin before it"
            found.append(Constraint(0, apply("*", taken.least, alive), "at-most", text))
        needed = apply("+", taken.most, 1)
        if at_most(needed, extent):
            return found
        text = _BEYOND.format(axis=axis, what=what)
        return [*found, Constraint(apply("*", needed, alive), extent, "at-most", text)]

    def _of_scatter(self, operation: ir.Operation) -> list[Constraint]:
        updates, indices, original = (self.shapes.tensors.get(operand) for operand in list(operation.operands)[:3])
        if updates is None or indices is None or original is None:
            return []
        found = [Constraint(updates[0], indices[0], text="there must be as many updates as indices")]
        depth = len(original) - (len(updates) - 1)
        for axis, extent in enumerate(updates[1:], start=1):
            text = _BEYOND.format(axis=depth + axis - 1, what="the tensor that is scattered to")
            found.append(Constraint(extent, original[depth + axis - 1], "at-most", text))
        return found

    # -- movement

    def _of_concat(self, operation: ir.Operation) -> list[Constraint]:
        along = ir.IntegerAttr(operation.attributes["dim"]).value
        parts = [self.shapes.tensors.get(operand) for operand in operation.operands]
        found: list[Constraint] = []
        for number, part in enumerate(parts):
            for axis, (extent, other) in enumerate(zip(part or (), parts[0] or (), strict=False)):
                if axis != along:
                    text = f"axis {axis} of inputs 0 and {number} must be equal"
                    found.append(Constraint(other, extent, text=text))
        return found + self._of_result(operation)

    def _of_slice(self, operation: ir.Operation) -> list[Constraint]:
        inserts = operation.name == "tensor.insert_slice"
        whole = operation.operands[1 if inserts else 0]
        small = operation.operands[0] if inserts else operation.results[0]
        if whole not in self.shapes.tensors:
            return []
        offsets, sizes, strides = self._slice(operation)
        what = "its target" if inserts else "its source"
        found: list[Constraint] = []
        for axis, extent in enumerate(self.shapes.tensors[whole]):
            offset, size, stride = offsets[axis], sizes[axis], strides[axis]
            if size is not None:
                found += self._not_negative(size)
            if offset is None or size is None or stride is None:
                continue
            span = Range(0, apply("*", apply("-", size.most, 1), stride.most), size.exact, size.counters)
            apart = offset.counters.isdisjoint(size.counters | stride.counters)
            reach = Range(
                offset.least, apply("+", offset.most, span.most), offset.exact and span.exact and stride.exact and apart
            )
            found += self._within(reach, extent, axis, what)
        kept = kept_axes(static_or_none(operation, "static_sizes"), ir.RankedTensorType(small.type))
        for axis, (extent, place) in enumerate(zip(self.shapes.tensors.get(small, ()), kept, strict=False)):
            if (size := sizes[place]) is not None and size.least == size.most:
                found.append(Constraint(
                    apply("*", extent, self.live), apply("*", size.most, self.live),
                    text=f"axis {axis} of what is inserted must be as long as its place",
                ))
        return found

    def _slice(self, operation: ir.Operation) -> list[list[Range | None]]:
        """The ranges of offsets, sizes and strides of a slice."""
        segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
        given = iter(list(operation.operands)[len(operation.operands) - sum(segments[-3:]) :])
        ranges = Ranges(self.shapes)
        return [
            [Range(n, n) if n is not None else ranges.of(next(given)) for n in static_or_none(operation, name)]
            for name in ("static_offsets", "static_sizes", "static_strides")
        ]

    # -- types and shapes

    def _of_type(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints that the result type of a cast or a collapse implies."""
        source = self.shapes.tensors.get(operation.operands[0])
        kind = ir.RankedTensorType(operation.results[0].type)
        if source is None:
            return []
        groups = [[axis] for axis in range(kind.rank)]
        if operation.name == "tensor.collapse_shape":
            groups = reassociation(operation)
        return [
            Constraint(
                product(source[axis] for axis in group), kind.shape[position],
                text=f"the number of elements along {_axes(group)} of its input must be equal to the shape asked for",
            )
            for position, group in enumerate(groups)
            if not kind.is_dynamic_dim(position)
        ]

    def _of_split(self, operation: ir.Operation) -> list[Constraint]:
        source = self.shapes.tensors.get(operation.operands[0])
        shape = self.shapes.tensors.get(operation.results[0])
        found = self._of_sizes(operation)
        for position, group in enumerate(reassociation(operation)):
            if source is None or shape is None or position >= len(source):
                continue
            text = f"the number of elements along axis {position} of its input must be equal to the shape asked for"
            parts = [shape[axis] for axis in group]
            found += _divisible(source[position], parts) or [
                Constraint(source[position], product(parts), text=text)
            ]
        return found

    def _of_reshape(self, operation: ir.Operation) -> list[Constraint]:
        source = self.shapes.tensors.get(operation.operands[0])
        kind = ir.RankedTensorType(operation.results[0].type)
        given = operation.operands[1].owner
        target: list[Expr | None] = [
            None if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
        ]
        if not isinstance(given, ir.Block) and given.name == "tensor.from_elements":
            target = [self.shapes.numbers.get(element) for element in given.operands]
        known = [extent for extent in target if extent is not None]
        if source is None or len(known) != len(target):
            return []
        text = "the number of elements of its input must be equal to the shape asked for"
        return [Constraint(product(source), product(known), text=text)]

    def _of_result(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints that the result type of a concatenation implies."""
        result = operation.results[0]
        kind = ir.RankedTensorType(result.type)
        along = ir.IntegerAttr(operation.attributes["dim"]).value
        parts = [self.shapes.tensors.get(operand) for operand in operation.operands]
        found: list[Constraint] = []
        for axis in range(kind.rank):
            extents = [part[axis] for part in parts if part is not None]
            if kind.is_dynamic_dim(axis) or len(extents) != len(parts):
                continue
            length = extents[0]
            for extent in extents[1:] if axis == along else []:
                length = apply("+", length, extent)
            found.append(Constraint(length, kind.shape[axis], text=f"axis {axis} of its result must be as declared"))
        return found

    def _of_sizes(self, operation: ir.Operation) -> list[Constraint]:
        """The constraints that computed extents are not negative."""
        found: list[Constraint] = []
        for operand in operation.operands:
            if isinstance(operand.type, ir.IndexType) and (size := Ranges(self.shapes).of(operand)) is not None:
                found += self._not_negative(size)
        return found

    def _not_negative(self, size: Range) -> list[Constraint]:
        if size.is_natural or not size.exact:
            return []
        text = "an extent that is calculated from others must not be negative"
        return [Constraint(0, apply("*", size.least, self.live), "at-most", text)]


def _together(first: int, axis: int, second: int, other: int) -> str:
    if first == second:
        return f"axes {axis} and {other} of operand {first} must be equal"
    if axis == other:
        return f"axis {axis} of operands {first} and {second} must be equal"
    return f"axis {axis} of operand {first} and axis {other} of operand {second} must be equal"


def _axes(group: Sequence[int]) -> str:
    return f"axis {group[0]}" if len(group) == 1 else f"axes {', '.join(map(str, group))}"


def _divisible(extent: Expr, parts: Sequence[Expr]) -> list[Constraint]:
    """The constraint that an extent is divisible, if one of `parts` is its quotient by the others."""
    for number, part in enumerate(parts):
        others = product(other for place, other in enumerate(parts) if place != number)
        if others == 0 or isinstance(part, int):
            continue
        if apply("//", extent, others) == part:
            text = "an extent that is split, and what it is split by, must be divisible"
            return [Constraint(extent, others, "multiple", text)] if product(parts) != extent else []
    return []
