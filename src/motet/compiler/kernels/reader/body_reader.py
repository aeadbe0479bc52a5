"""Reads the scalar operations of a region, or a single one outside of a region, into a stage's body."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, compose_maps, identity_map
from motet.compiler.ir.attributes import FLOAT_PREDICATES, INTEGER_PREDICATES, constant_number
from motet.compiler.ir.source_names import source_name
from motet.compiler.kernels.kernel import Access, Scalar
from motet.compiler.kernels.reader.reading import Number, Reading, Source, Unreadable, View, dtype_of

_AFFINE = {
    ir.AffineAddExpr: "arith.addi", ir.AffineMulExpr: "arith.muli", ir.AffineFloorDivExpr: "arith.floordivsi",
    ir.AffineCeilDivExpr: "arith.ceildivsi",
}


class BodyReader:
    """Reads a region of scalar operations. Body values are numbered: inputs, outputs, then operations. During reading,
    outputs and operations have provisional numbers, which `read` resolves."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.accesses: list[Access] = []
        self.names: dict[ir.Value, tuple[str, int]] = {}
        self.constants: list[tuple[ir.Value, Number, str]] = []
        self.scalars: list[Scalar] = []
        self.yields: list[int] = []

    def bind(self, argument: ir.Value, source: Source, map_: Sequence[Affine], operand: ir.Value) -> None:
        """Bind the region's `argument` to `operand`, which stands for `source`, at `map_`."""
        if isinstance(source, View):
            access = Access(source.base, compose_maps(source.map, map_), source.padding)
            if access in self.accesses:
                self.names[argument] = ("input", self.accesses.index(access))
                return
            self.names[argument] = ("input", len(self.accesses))
            self.accesses.append(access)
        else:
            self.constants.append((argument, 0 if source is None else source, dtype_of(operand.type)))

    def bind_output(self, argument: ir.Value, k: int) -> None:
        self.names[argument] = ("output", k)

    def read_one(self, operation: ir.Operation) -> None:
        """Read one operation on bound values as a body with one output."""
        position = self._begin(1)
        self.scalars.append(self._scalar(operation, tuple(position[operand] for operand in operation.operands)))
        self.yields = [len(self.accesses) + len(self.scalars)]

    def read_apply(self, operation: ir.Operation) -> int:
        """Read an `affine.apply` of bound values as a body with one output; returns the number of the value it
        yields."""
        position = self._begin(1)
        return self._applied(operation, [position[operand] for operand in operation.operands], len(self.accesses) + 1)

    def _begin(self, outputs: int) -> dict[ir.Value, int]:
        """The numbers of the bound values."""
        position: dict[ir.Value, int] = {}
        for value, (kind, index) in self.names.items():
            position[value] = index if kind == "input" else len(self.accesses) + index
        for value, number, dtype in self.constants:
            position[value] = len(self.accesses) + outputs + len(self.scalars)
            self.scalars.append(Scalar("arith.constant", (), dtype, number))
        return position

    def read(self, block: ir.Block, outputs: int) -> None:
        self._capture(block)
        base = len(self.accesses) + outputs
        position = self._begin(outputs)
        for operation in block.operations:
            op = operation.operation
            if op.name == "linalg.yield":
                self.yields = [position[operand] for operand in op.operands]
                return
            if op.name == "cf.assert" and self.reading.gathers:
                continue  # a bounds assertion: gathers clamp indices out of bounds
            if op.name == "affine.apply" and self.reading.gathers:
                position[op.results[0]] = self._applied(op, [position[operand] for operand in op.operands], base)
                continue
            scalar = self._scalar(op, tuple(position[operand] for operand in op.operands))
            position[op.results[0]] = base + len(self.scalars)
            self.scalars.append(scalar)

    def _applied(self, op: ir.Operation, operands: Sequence[int], base: int) -> int:
        """The number of the result of an `affine.apply`, as index arithmetic."""
        map_ = ir.AffineMapAttr(op.attributes["map"]).value

        def add(name: str, *parts: int, value: int | None = None) -> int:
            self.scalars.append(Scalar(name, parts, "index", value))
            return base + len(self.scalars) - 1

        def emitted(expression: ir.AffineExpr) -> int:
            if isinstance(expression, ir.AffineConstantExpr):
                return add("arith.constant", value=ir.AffineConstantExpr(expression).value)
            if isinstance(expression, ir.AffineDimExpr):
                return operands[ir.AffineDimExpr(expression).position]
            if isinstance(expression, ir.AffineSymbolExpr):
                return operands[map_.n_dims + ir.AffineSymbolExpr(expression).position]
            for kind, name in _AFFINE.items():
                if isinstance(expression, kind):
                    pair = ir.AffineBinaryExpr(expression)
                    return add(name, emitted(pair.lhs), emitted(pair.rhs))
            raise Unreadable(f"indexing expression {expression}")

        return emitted(map_.results[0])

    def _capture(self, block: ir.Block) -> None:
        """Bind values of the enclosing function that the region uses: scalars, known or read from a tensor."""
        inside = set(block.arguments)
        for operation in block.operations:
            op = operation.operation
            if len(op.regions):
                raise Unreadable(f"{op.name} inside a linalg body")
            for operand in op.operands:
                if operand in inside or operand in self.names:
                    continue
                source = self.reading.source_of(operand)
                table = self._table(op, operand)
                if table is not None:
                    self.bind(operand, table, (Affine(),) * len(table.shape), operand)
                    continue
                if isinstance(source, View) and source.shape:
                    raise Unreadable(f"{op.name} of a whole tensor inside a linalg body")
                if isinstance(source, View):
                    self.bind(operand, source, (), operand)
                elif all(value != operand for value, _, _ in self.constants):
                    self.constants.append((operand, 0 if source is None else source, dtype_of(operand.type)))
            inside.update(op.results)

    def _table(self, op: ir.Operation, operand: ir.Value) -> View | None:
        """The tensor `operand` from which `op` gathers; None if it is not a gather."""
        source = self.reading.source_of(operand)
        if not self.reading.gathers or op.name != "tensor.extract" or operand != op.operands[0]:
            return None
        if not isinstance(source, View):
            kind = ir.RankedTensorType(operand.type)
            if not kind.has_static_shape:
                raise Unreadable("a computed place in a constant")
            return self.reading.spread(source or 0, tuple(kind.shape), dtype_of(kind))
        value = self.reading.values[source.base]
        whole = source.map == identity_map(value.rank) and source.shape == value.shape and source.padding is None
        return source if whole else self.reading.materialised(source, dtype_of(operand.type))

    def _check(self, op: ir.Operation) -> int:
        """The number of the text for an index of a `tensor.extract` out of bounds; 0 if it is always in bounds."""
        kind = ir.RankedTensorType(op.operands[0].type)
        inside = all(
            not kind.is_dynamic_dim(axis) and self.reading.intervals.is_inside(index, kind.get_dim_size(axis))
            for axis, index in enumerate(list(op.operands)[1:])
        )
        if inside or not self.reading.checks_indices:
            return 0
        text = source_name(op)
        if text not in self.reading.checks:
            self.reading.checks.append(text)
        return self.reading.checks.index(text) + 1

    def _scalar(self, op: ir.Operation, operands: tuple[int, ...]) -> Scalar:
        if len(op.results) != 1:
            raise Unreadable(f"operation {op.name} inside a linalg body")
        dtype = dtype_of(op.results[0].type)
        if op.name == "arith.constant":
            number = constant_number(op)
            return Scalar(op.name, (), dtype, number)
        if op.name == "linalg.index":
            return Scalar(op.name, (), dtype, ir.IntegerAttr(op.attributes["dim"]).value)
        if op.name in ("arith.cmpf", "arith.cmpi"):
            index = ir.IntegerAttr(op.attributes["predicate"]).value
            names = FLOAT_PREDICATES if op.name == "arith.cmpf" else INTEGER_PREDICATES
            return Scalar(op.name, operands, dtype, None, names[index])
        if self.reading.gathers and op.name == "tensor.extract":
            return Scalar(op.name, operands, dtype, check=self._check(op))
        if not op.name.startswith(("arith.", "math.")):
            raise Unreadable(f"operation {op.name} inside a linalg body")
        return Scalar(op.name, operands, dtype)
