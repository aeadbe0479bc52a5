"""Rewrites the operations of a candidate on the common refinement of the reshapes between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.ir.nests import loops
from motet.compiler.ir.sizes import extent_of
from motet.compiler.kernels.roles import known_number, structure_of
from motet.compiler.passes.fuse.candidates import Candidate, Triangle
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.fuse.reshape_common_shape import Axis, Extents, NoRefinement, Reshape, ReshapedTensor, Slice

Key = tuple[int, int]  # the number of an operation, and of its operand


@dataclass
class CandidateBuilder:
    """Builds the operations of a candidate on refined extents, at any insertion point."""

    candidate: Candidate
    extents: Extents = field(default_factory=Extents)

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.candidate.operations):
            self._declare(number, operation)
        self.extents.settle()

    def _names(self, number: int) -> list[str]:
        """The name of each operand's extents."""
        return [
            f"r{source.node}.{source.result}" if source.node >= 0 else f"b{number}.{k}"
            for k, source in enumerate(self.candidate.sources[number])
        ]

    def _declare(self, number: int, operation: ir.Operation) -> None:
        e = self.extents
        names = self._names(number)
        for k, name in enumerate(names):
            if name not in e.tensors and isinstance(operation.operands[k].type, ir.RankedTensorType):
                e.declare(name, ir.RankedTensorType(operation.operands[k].type))
        for k, result in enumerate(operation.results):
            e.declare(f"r{number}.{k}", ir.RankedTensorType(result.type))
        if operation.name == "linalg.generic":
            self._declare_loops(number, operation, names)
        elif operation.name == "tensor.concat":
            e.concatenate(f"r{number}.0", names, ir.IntegerAttr(operation.attributes["dim"]).value)
        elif operation.name == "tensor.extract_slice":
            e.slices.append(Slice(names[0], f"r{number}.0", operation))
        else:
            wide, narrow = f"r{number}.0", names[0]
            if operation.name == "tensor.collapse_shape":
                wide, narrow = narrow, wide
            e.reshapes.append(Reshape(wide, narrow, reassociation(operation)))

    def _declare_loops(self, number: int, operation: ir.Operation, names: list[str]) -> None:
        structure = structure_of(operation)
        if structure is None or any(structure.sizes[d] == 1 for d in structure.reduced):
            raise NoRefinement
        loops = self.extents.loops(f"d{number}", structure.sizes)
        results = [f"r{number}.{k}" for k in range(len(operation.results))]
        for name, operand, map_ in zip([*names, *results], operation.operands, structure.maps, strict=True):
            if not isinstance(operand.type, ir.RankedTensorType):
                continue
            for axis, entry in enumerate(map_):
                if entry.single is not None:
                    self.extents.join(loops, entry.single, name, axis)
                elif not (entry.is_constant and entry.constant == 0):
                    raise NoRefinement

    # -- outer values --

    def outside(self) -> list[tuple[Key, ir.Value]]:
        """The outer tensors that the candidate reads, with their operands."""
        return [
            ((number, k), operation.operands[k])
            for number, operation in enumerate(self.candidate.operations)
            for k, source in enumerate(self.candidate.sources[number])
            if source.node < 0 and source.number is None and source.triangle is None
        ]

    def tensor(self, key: Key) -> ReshapedTensor:
        number, k = key
        operation = self.candidate.operations[number]
        return self.extents.refined(self._names(number)[k], operation.operands[k].type)

    def result(self) -> ReshapedTensor:
        last = len(self.candidate.operations) - 1
        return self.extents.refined(f"r{last}.0", self.candidate.operations[last].results[0].type)

    # -- building --

    def build(self, inputs: Sequence[ir.Value], mark: int) -> ir.Value:
        """Builds all operations at the current insertion point, with `inputs` in place of `outside`; returns the
        result."""
        given = dict(zip([key for key, _ in self.outside()], inputs, strict=True))
        unknown = self._unknown(given)
        made: dict[tuple[int, int], ir.Value] = {}
        for number, operation in enumerate(self.candidate.operations):
            operands: list[ir.Value] = []
            for k, source in enumerate(self.candidate.sources[number]):
                if source.node >= 0:
                    operands.append(made[source.node, source.result])
                elif source.number is not None:
                    operands.append(_scalar(operation.operands[k].type, source.number))
                elif source.triangle is not None:
                    operands.append(self._triangle(self.tensor((number, k)), source.triangle, mark))
                else:
                    operands.append(given[number, k])
            results = self._one(number, operation, operands, unknown, mark)
            made |= {(number, k): value for k, value in enumerate(results)}
        return made[len(self.candidate.operations) - 1, 0]

    def _unknown(self, given: dict[Key, ir.Value]) -> dict[Axis, ir.Value]:
        """The dynamic extents, read from outer values: `tensor.dim` of an intermediate value would store it in
        memory."""
        found: dict[Axis, ir.Value] = {}
        for (number, k), value in given.items():
            operation = self.candidate.operations[number]
            name = self._names(number)[k]
            position = 0
            for axis in range(ir.RankedTensorType(operation.operands[k].type).rank):
                parts = self.extents.parts((name, axis))
                lead = self.extents.lead((name, axis))
                if parts and parts[0] is None and lead not in found:
                    found[lead] = extent_of(value, position)
                position += len(parts)
        return found

    def _one(
        self, number: int, operation: ir.Operation, operands: list[ir.Value], unknown: dict[Axis, ir.Value], mark: int
    ) -> list[ir.Value]:
        if operation.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            return operands  # both sides have the same refined extents
        if operation.name == "tensor.extract_slice":
            names = self._names(number)
            return [_marked(self.extents.slice(operands[0], operation, names[0], f"r{number}.0"), mark)]
        if operation.name == "tensor.concat":
            axis = ir.IntegerAttr(operation.attributes["dim"]).value
            names = self._names(number)
            parts = [
                _marked(part, mark) if part != operand else part
                for operand, part in zip(operands, self.extents.with_axis(operands, names, axis), strict=True)
            ]
            return [_marked(self.extents.concatenation(parts, f"r{number}.0", axis, operation), mark)]
        return self._generic(number, operation, operands, unknown, mark)

    def _generic(
        self, number: int, operation: ir.Operation, operands: list[ir.Value], unknown: dict[Axis, ir.Value], mark: int
    ) -> list[ir.Value]:
        structure = structure_of(operation)
        if structure is None:
            raise NoRefinement
        loops = self.extents.numbered(f"d{number}")
        count = sum(map(len, loops))
        maps: list[ir.AffineMap] = []
        for operand, map_ in zip([*operands, *operation.results], structure.maps, strict=True):
            entries = [d for entry in map_ if entry.single is not None for d in loops[entry.single]]
            if not isinstance(operand.type, ir.RankedTensorType):
                entries = []
            maps.append(ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(d) for d in entries]))
        sizes = self._sizes(number, unknown)
        outputs = [
            self._begin(operation.operands[len(operands) + k], maps[len(operands) + k], sizes, result.type)
            for k, result in enumerate(operation.results)
        ]
        kinds = [d in structure.reduced for d, new in enumerate(loops) for _ in new]
        created = ir.Operation.create(
            "linalg.generic", results=[output.type for output in outputs], operands=[*operands, *outputs],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": ir.ArrayAttr.get(
                    [ir.Attribute.parse(f"#linalg.iterator_type<{'reduction' if k else 'parallel'}>") for k in kinds]
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), len(outputs)]),
            },
            regions=1,
        )
        copy = operation.clone()
        copy.regions[0].blocks[0].append_to(created.regions[0])
        copy.operation.erase()
        _own_captures(created, loops)
        _marked(created.results[0], mark)
        return list(created.results)

    def _sizes(self, number: int, unknown: dict[Axis, ir.Value]) -> list[int | ir.Value]:
        """The extents of the refined loops; dynamic ones as values."""
        name = f"d{number}"
        found: list[int | ir.Value] = []
        for axis in range(len(self.extents.tensors[name])):
            for part in self.extents.parts((name, axis)):
                if part is None and self.extents.lead((name, axis)) not in unknown:
                    raise NoRefinement  # an extent of unknown origin
                found.append(unknown[self.extents.lead((name, axis))] if part is None else part)
        return found

    def _begin(
        self, original: ir.Value, map_: ir.AffineMap, sizes: Sequence[int | ir.Value], kind: ir.Type
    ) -> ir.Value:
        """An accumulator like `original`, on refined extents."""
        element = ir.RankedTensorType(kind).element_type
        extents = [sizes[ir.AffineDimExpr(entry).position] for entry in map_.results]
        unknown = ir.ShapedType.get_dynamic_size()
        shape = [size if isinstance(size, int) else unknown for size in extents]
        empty = ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get(shape, element)],
            operands=[size for size in extents if not isinstance(size, int)],
        ).results[0]
        number = known_number(original)
        if number is None:
            owner = original.owner
            if isinstance(owner, ir.Block) or owner.operation.name != "tensor.empty":
                raise NoRefinement
            return empty
        identity = ir.AffineMap.get_identity(len(shape))
        maps = [ir.AffineMap.get(len(shape), 0, []), identity]

        return loops([_scalar(element, number)], empty, maps, lambda block: block.arguments[0])

    def _triangle(self, tensor: ReshapedTensor, triangle: Triangle, mark: int) -> ir.Value:
        """The mask as a comparison of positions."""
        kind = tensor.kind
        if list(kind.shape) != [triangle.rows, triangle.columns]:
            raise NoRefinement
        element = kind.element_type
        empty = ir.Operation.create("tensor.empty", results=[kind]).results[0]
        index = ir.IndexType.get()

        def body(block: ir.Block) -> ir.Value:
            row, column = (
                ir.Operation.create("linalg.index", results=[index], attributes={"dim": _i64(d)}).results[0]
                for d in (0, 1)
            )
            shift = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, triangle.offset)}
            ).results[0]
            last = ir.Operation.create("arith.addi", results=[index], operands=[row, shift]).results[0]
            truth = isinstance(element, ir.IntegerType)
            predicate = 3 if triangle.first or not truth else 4  # sle, sgt
            seen = ir.Operation.create(
                "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[column, last],
                attributes={"predicate": _i64(predicate)},
            ).results[0]
            if truth:
                return seen
            values = [_scalar(element, value) for value in (triangle.first, triangle.second)]
            return ir.Operation.create("arith.select", results=[element], operands=[seen, *values]).results[0]

        made = loops([], empty, [ir.AffineMap.get_identity(2)], body)
        return _marked(made, mark)


def _marked(value: ir.Value, mark: int) -> ir.Value:
    ir.OpResult(value).owner.attributes[MARK] = _i64(mark)
    return value


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _scalar(kind: ir.Type, number: float | int) -> ir.Value:
    element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind
    floating = isinstance(element, ir.FloatType)
    value = ir.FloatAttr.get(element, float(number)) if floating else ir.IntegerAttr.get(element, int(number))
    return ir.Operation.create("arith.constant", results=[element], attributes={"value": value}).results[0]


def _own_captures(operation: ir.Operation, loops: Sequence[Sequence[int]]) -> None:
    """Replaces outer constants in a body by copies inside it, and its indices by those of the refined loops."""
    block = operation.regions[0].blocks[0]
    inside = set(block.arguments)
    for entry in list(block.operations):
        child = entry.operation
        if child.name == "linalg.index":
            new = loops[ir.IntegerAttr(child.attributes["dim"]).value]
            if len(new) > 1:
                raise NoRefinement
            if new:
                child.attributes["dim"] = _i64(new[0])
            else:
                with ir.InsertionPoint(child):
                    child.results[0].replace_all_uses_with(_scalar(child.results[0].type, 0))
        for k, operand in enumerate(child.operands):
            if operand in inside:
                continue
            number = known_number(operand)
            if number is None:
                raise NoRefinement
            with ir.InsertionPoint(child):
                child.operands[k] = _scalar(operand.type, number)
        inside.update(child.results)
        if child.operands:
            inside.update(child.operands)
