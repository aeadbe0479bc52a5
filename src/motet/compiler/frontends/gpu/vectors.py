"""Writes short vectors in kernels as scalars; the host vectorizes loops over threads instead.

    %v = vector.load %x[%i] : memref<64xf32>, vector<2xf32>        %0 = memref.load %x[%i];  %1 = memref.load %x[%i + 1]
    %w = arith.mulf %v, %v : vector<2xf32>                    →    %2 = arith.mulf %0, %0;   %3 = arith.mulf %1, %1
"""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.reductions import combining
from motet.errors import CompileError

_MOST = 64  # elements


def make_scalar(holder: ir.Module) -> None:
    """Rewrites all vectors in `holder`. Raises CompileError, at the operation, for vectors of several dimensions and
    for operations without a scalar form."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        values = [*operation.operands, *operation.results]
        if operation.name.startswith("vector.") or any(isinstance(value.type, ir.VectorType) for value in values):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    holder.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    rewriter = _VectorScalars()
    for operation in found:
        rewriter.rewrite(operation)
    for operation in reversed(found):
        operation.erase()


class _VectorScalars:
    def __init__(self) -> None:
        self.elements: dict[ir.Value, list[ir.Value]] = {}
        self.rules: dict[str, Callable[[ir.Operation], None]] = {
            "vector.load": self._load, "vector.store": self._store, "vector.broadcast": self._broadcast,
            "vector.splat": self._broadcast, "vector.extract": self._extract, "vector.insert": self._insert,
            "vector.reduction": self._reduction, "vector.fma": self._fma, "vector.from_elements": self._from_elements,
            "vector.to_elements": self._to_elements, "arith.constant": self._constant,
        }  # fmt: skip

    def rewrite(self, operation: ir.Operation) -> None:
        if rule := self.rules.get(operation.name):
            rule(operation)
        elif operation.name.startswith(("arith.", "math.")) and len(operation.results) == 1:
            self._each(operation, operation.name)
        else:
            raise self._refused(operation)

    def _refused(self, operation: ir.Operation) -> CompileError:
        return CompileError(
            f"{operation.name}: this operation on vectors in a kernel is not supported on the host; expected loads, "
            "stores, arithmetic, broadcasts, reductions and elements of vectors of one dimension",
            locate(operation.location),
        )

    def _length(self, kind: ir.Type, operation: ir.Operation) -> int:
        if not isinstance(kind, ir.VectorType) or kind.rank != 1 or kind.scalable or kind.shape[0] > _MOST:
            raise self._refused(operation)
        return kind.shape[0]

    def _create(
        self, operation: ir.Operation, name: str, kinds: list[ir.Type], operands: list[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Operation:
        return ir.Operation.create(
            name, results=kinds, operands=operands, attributes=attributes or {}, loc=operation.location,
            ip=ir.InsertionPoint(operation),
        )

    def _index(self, operation: ir.Operation, number: int) -> ir.Value:
        index = ir.IndexType.get()
        return self._create(
            operation, "arith.constant", [index], [], {"value": ir.IntegerAttr.get(index, number)}
        ).result

    def _places(self, operation: ir.Operation, indices: list[ir.Value], length: int) -> list[list[ir.Value]]:
        found: list[list[ir.Value]] = []
        for number in range(length):
            last = indices[-1]
            if number:
                step = self._index(operation, number)
                last = self._create(operation, "arith.addi", [last.type], [last, step]).result
            found.append([*indices[:-1], last])
        return found

    def _load(self, operation: ir.Operation) -> None:
        memory, *indices = operation.operands
        kind = ir.VectorType(operation.results[0].type)
        places = self._places(operation, indices, self._length(kind, operation))
        self.elements[operation.results[0]] = [
            self._create(operation, "memref.load", [kind.element_type], [memory, *place]).result for place in places
        ]

    def _store(self, operation: ir.Operation) -> None:
        vector, memory, *indices = operation.operands
        elements = self._of(vector, operation)
        for element, place in zip(elements, self._places(operation, indices, len(elements)), strict=True):
            self._create(operation, "memref.store", [], [element, memory, *place])

    def _of(self, value: ir.Value, operation: ir.Operation) -> list[ir.Value]:
        if value not in self.elements:
            raise self._refused(operation)
        return self.elements[value]

    def _each(self, operation: ir.Operation, name: str) -> None:
        kind = operation.results[0].type
        length = self._length(kind, operation)
        attributes = {key: operation.attributes[key] for key in operation.attributes}
        operands = [
            self._of(value, operation) if isinstance(value.type, ir.VectorType) else [value] * length
            for value in operation.operands
        ]
        element = ir.VectorType(kind).element_type
        self.elements[operation.results[0]] = [
            self._create(operation, name, [element], list(lane), attributes).result
            for lane in zip(*operands, strict=True)
        ]

    def _constant(self, operation: ir.Operation) -> None:
        kind = ir.VectorType(operation.results[0].type)
        length = self._length(kind, operation)
        dense = ir.DenseElementsAttr(operation.attributes["value"])
        if dense.is_splat:
            values = [dense.get_splat_value()] * length
        else:
            whole = isinstance(kind.element_type, (ir.IntegerType, ir.IndexType))
            make = ir.IntegerAttr.get if whole else ir.FloatAttr.get
            values = [make(kind.element_type, number) for number in dense]
        self.elements[operation.results[0]] = [
            self._create(operation, "arith.constant", [kind.element_type], [], {"value": value}).result
            for value in values
        ]

    def _broadcast(self, operation: ir.Operation) -> None:
        length = self._length(operation.results[0].type, operation)
        source = operation.operands[0]
        if isinstance(source.type, ir.VectorType):
            elements = self._of(source, operation)
            self.elements[operation.results[0]] = elements * (length // len(elements))
        else:
            self.elements[operation.results[0]] = [source] * length

    def _position(self, operation: ir.Operation, length: int) -> int:
        position = list(ir.DenseI64ArrayAttr(operation.attributes["static_position"]))
        if len(position) != 1 or not 0 <= position[0] < length:
            raise self._refused(operation)
        return position[0]

    def _extract(self, operation: ir.Operation) -> None:
        elements = self._of(operation.operands[0], operation)
        operation.results[0].replace_all_uses_with(elements[self._position(operation, len(elements))])

    def _insert(self, operation: ir.Operation) -> None:
        elements = list(self._of(operation.operands[1], operation))
        elements[self._position(operation, len(elements))] = operation.operands[0]
        self.elements[operation.results[0]] = elements

    def _reduction(self, operation: ir.Operation) -> None:
        written = str(operation.attributes["kind"])
        name = combining(written.partition("kind<")[2].rstrip(">"), operation.results[0].type)
        elements = list(self._of(operation.operands[0], operation))
        kind = operation.results[0].type
        if not name:
            raise self._refused(operation)
        elements += list(operation.operands)[1:]
        found = elements[0]
        for element in elements[1:]:
            found = self._create(operation, name, [kind], [found, element]).result
        operation.results[0].replace_all_uses_with(found)

    def _fma(self, operation: ir.Operation) -> None:
        self._each(operation, "math.fma")

    def _from_elements(self, operation: ir.Operation) -> None:
        self._length(operation.results[0].type, operation)
        self.elements[operation.results[0]] = list(operation.operands)

    def _to_elements(self, operation: ir.Operation) -> None:
        for result, element in zip(operation.results, self._of(operation.operands[0], operation), strict=True):
            result.replace_all_uses_with(element)
