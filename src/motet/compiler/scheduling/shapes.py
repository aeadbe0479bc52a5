"""shapes: the extents of every value of a public function, as expressions over its inputs' dynamic extents."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from motet.artifact.expressions import apply, may_be_negative, product
from motet.artifact.schema import Expr, Symbol
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number, kept_axes, reassociation, static_or_none
from motet.compiler.ir.program import DIMS
from motet.compiler.ir.source_names import source_name
from motet.compiler.scheduling.carried import written_into
from motet.errors import CompileError

OPERATORS = {
    "arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divui": "//", "arith.divsi": "//",
    "arith.floordivsi": "//", "arith.ceildivsi": "ceildiv", "arith.ceildivui": "ceildiv",
    "arith.maxsi": "max", "arith.maxui": "max", "arith.minsi": "min", "arith.minui": "min",
}
_DYNAMIC = ir.ShapedType.get_dynamic_size()  # marks an operand among static sizes
OF_TENSORS = ("tensor.dim", "tensor.cast", "tensor.collapse_shape", "tensor.expand_shape")
PASSED_ON = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci")


_MOST_TERMS = 2000  # in an expression; each of a size that is used twice counts twice
_LESS, _NOT_LESS = 2, 5  # predicates of arith.cmpi: slt, sge
_COMPARED = {
    0: operator.eq, 1: operator.ne, 2: operator.lt, 3: operator.le, 4: operator.gt, 5: operator.ge,
}  # fmt: skip


class Shapes:
    """Extents of tensors and values of index arithmetic in one public function with one block."""

    def __init__(self, function: ir.Operation) -> None:
        self.symbols: list[Symbol] = []
        self.tensors: dict[ir.Value, tuple[Expr, ...]] = {}
        self.numbers: dict[ir.Value, Expr] = {}
        self.below_zero: dict[ir.Value, Expr] = {}  # dynamic comparison → the expression that it compares with 0
        self.equalities: list[tuple[Expr, Expr]] = []  # assumptions of operations on extents
        block = function.regions[0].blocks[0]
        attributes = (
            [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
            if "arg_attrs" in function.attributes
            else [None] * len(block.arguments)
        )
        for index, (argument, attribute) in enumerate(zip(block.arguments, attributes, strict=True)):
            self.tensors[argument] = self._argument(argument, index, _names(attribute))

    def _argument(self, argument: ir.Value, index: int, names: list[str]) -> tuple[Expr, ...]:
        kind = ir.RankedTensorType(argument.type)
        shape: list[Expr] = []
        for axis in range(kind.rank):
            if not kind.is_dynamic_dim(axis):
                shape.append(kind.shape[axis])
                continue
            name, own = names[axis] if axis < len(names) else "", f"d{index}_{axis}"
            if name and any(symbol.name == name for symbol in self.symbols):
                self._expect_equal(own, name)  # two extents under one name
                name = ""
            name = name or own
            self.symbols.append(Symbol(name, index, axis))
            shape.append(name)
        return tuple(shape)

    def read(self, operation: ir.Operation) -> None:
        """Records a size or alias operation; skips one of a tensor of unknown extents."""
        name, results = operation.name, list(operation.results)
        if name in OF_TENSORS and operation.operands[0] not in self.tensors:
            return
        if name == "tensor.dim":
            axis = self.numbers.get(operation.operands[1])
            if isinstance(axis, int):
                self.numbers[results[0]] = self.tensors[operation.operands[0]][axis]
        elif name == "arith.constant":
            number = constant_number(operation)
            if isinstance(number, int):
                self.numbers[results[0]] = number
        elif name in OPERATORS:
            left, right = (self.numbers.get(operand) for operand in operation.operands)
            undefined = OPERATORS[name] in ("//", "ceildiv") and right == 0
            if left is not None and right is not None and not undefined:
                self.numbers[results[0]] = _bounded(apply(OPERATORS[name], left, right))
        elif name == "arith.cmpi":
            self._read_comparison(operation)
        elif name == "arith.select":
            condition, *sides = (self.numbers.get(operand) for operand in operation.operands)
            chosen = sides[0] if condition == 1 else sides[1] if condition == 0 else None
            below = self.below_zero.get(operation.operands[0])
            if below is not None and sides[1] == below and sides[0] in (-1, 0):
                chosen = apply("max", below, sides[0])  # for integers the select is a maximum
            if chosen is not None:
                self.numbers[results[0]] = chosen
        elif name in PASSED_ON:
            if operation.operands[0] in self.numbers:
                self.numbers[results[0]] = self.numbers[operation.operands[0]]
        elif name == "affine.apply":
            self._read_apply(operation)
        elif name == "tensor.cast":
            source = self.tensors[operation.operands[0]]
            declared = self._declared(results[0], source)
            self.tensors[results[0]] = declared
            for extent, known in zip(source, declared, strict=True):  # a cast assumes the extents of its type
                self._expect_equal(extent, known)
        elif name == "tensor.collapse_shape":
            source = self.tensors[operation.operands[0]]
            groups = reassociation(operation)
            merged = tuple(product(source[axis] for axis in group) for group in groups)
            self.tensors[results[0]] = self._declared(results[0], merged)
        elif name == "tensor.expand_shape":
            self._read_expand(operation)

    def _read_comparison(self, operation: ir.Operation) -> None:
        """Records comparisons of numbers, and whether an extent is negative, which is always false."""
        left, right = (self.numbers.get(operand) for operand in operation.operands)
        predicate = ir.IntegerAttr(operation.attributes["predicate"]).value
        if isinstance(left, int) and isinstance(right, int):
            if predicate in _COMPARED:
                self.numbers[operation.results[0]] = int(_COMPARED[predicate](left, right))
            return
        below = isinstance(right, int) and right <= 0 and left is not None and not may_be_negative(left)
        if below and predicate in (_LESS, _NOT_LESS):
            self.numbers[operation.results[0]] = int(predicate == _NOT_LESS)
        elif predicate == _LESS and left is not None and right == 0:
            self.below_zero[operation.results[0]] = left

    def _read_apply(self, operation: ir.Operation) -> None:
        map_ = ir.AffineMapAttr(operation.attributes["map"]).value
        operands = [self.numbers.get(operand) for operand in operation.operands]
        known = [operand for operand in operands if operand is not None]
        if len(known) != len(operands):
            return
        value = _evaluated(map_.results[0], known[: map_.n_dims], known[map_.n_dims :])
        if value is not None:
            self.numbers[operation.results[0]] = value

    def _read_expand(self, operation: ir.Operation) -> None:
        source = self.tensors[operation.operands[0]]
        kind = ir.RankedTensorType(operation.results[0].type)
        given = iter(operation.operands[i] for i in range(1, len(operation.operands)))
        declared: list[Expr | None] = [
            self.numbers.get(next(given)) if kind.is_dynamic_dim(axis) else kind.shape[axis]
            for axis in range(kind.rank)
        ]
        shape: list[Expr] = []
        for position, group in enumerate(reassociation(operation)):
            known = product(size for axis in group if (size := declared[axis]) is not None)
            for axis in group:
                size = declared[axis]
                shape.append(apply("//", source[position], known) if size is None else size)
        if not source:  # a tensor of rank 0: the result's dimensions, all 1, are in no group
            shape = [1] * kind.rank
        self.tensors[operation.results[0]] = tuple(shape)

    def _declared(self, value: ir.Value, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        kind = ir.RankedTensorType(value.type)
        return tuple(
            size if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis, size in enumerate(shape)
        )

    def results_of(self, kernel: ir.Operation) -> list[tuple[Expr, ...]]:
        """The extents of the results of a kernel's function, given those of its arguments."""
        block = kernel.regions[0].blocks[0]
        operations = [o.operation for o in block.operations]
        for operation in operations[:-1]:
            self.note(operation)
        return [self.of(operand) for operand in operations[-1].operands]

    def note(self, operation: ir.Operation) -> None:
        """Records any operation, including computations."""
        self.read(operation)
        self._read_work(operation)

    def _read_equalities(self, operation: ir.Operation) -> None:
        """Records extents of common loops of a `linalg.generic` or an element-wise operation."""
        if operation.name == "linalg.generic":
            maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(operation.attributes["indexing_maps"])]
            loops: dict[int, Expr] = {}
            for operand, map_ in zip(operation.operands, maps, strict=True):
                for expression, extent in zip(map_.results, self.tensors.get(operand, ()), strict=False):
                    if isinstance(expression, ir.AffineDimExpr):
                        self._expect_equal(loops.setdefault(ir.AffineDimExpr(expression).position, extent), extent)
        elif operation.name.startswith(("arith.", "math.")):
            shapes = [self.tensors[operand] for operand in operation.operands if operand in self.tensors]
            for shape in shapes[1:]:
                for extent, other in zip(shape, shapes[0], strict=True):
                    self._expect_equal(extent, other)

    def _expect_equal(self, extent: Expr, other: Expr) -> None:
        pair = (extent, other)
        if extent != other and pair not in self.equalities:
            self.equalities.append(pair)

    def _read_work(self, operation: ir.Operation) -> None:
        """Records the extents of results: those of the destination, or of the type for other operations."""
        self._read_equalities(operation)
        if operation.name in ("scf.for", "scf.while"):
            self._read_loop(operation)
        elif operation.name in ("scf.if", "scf.index_switch") and operation.results:
            self._read_branches(operation)
        tensors = [result for result in operation.results if isinstance(result.type, ir.RankedTensorType)]
        for result in tensors:
            if result in self.tensors:
                continue
            kind = ir.RankedTensorType(result.type)
            if kind.has_static_shape:
                self.tensors[result] = tuple(kind.shape)
            elif operation.name.startswith(("linalg.", "tm_tensor.")):
                target = operation.operands[len(operation.operands) - len(tensors) + tensors.index(result)]
                if target in self.tensors:
                    self.tensors[result] = self.tensors[target]
            elif operation.name in ("tensor.insert", "tensor.insert_slice", "tensor.scatter"):
                if operation.operands[1] in self.tensors:
                    self.tensors[result] = self.tensors[operation.operands[1]]
            elif operation.name.startswith("scf.") and (origin := written_into(result)) in self.tensors:
                self.tensors[result] = self.tensors[origin]
            elif operation.name == "tensor.extract_slice":
                self._read_slice(operation, result, kind)
            elif operation.name == "tensor.reshape":
                self._read_reshape(operation, result)
            elif operation.name == "tensor.pad" and operation.operands[0] in self.tensors:
                self._read_pad(operation, result, kind)
            elif operation.name == "tensor.concat":
                self._read_concat(operation, result)
            elif operation.name in ("tensor.empty", "tensor.splat", "tensor.generate"):
                self._read_sized(operation, result, kind, 1 if operation.name == "tensor.splat" else 0)

    def _read_loop(self, loop: ir.Operation) -> None:
        """Records that a loop's results have the extents of its initial values, if each iteration yields the extents
        that it receives."""
        blocks = [region.blocks[0] for region in loop.regions]
        counted = loop.name == "scf.for"  # by three operands and an argument
        begun, handed = list(loop.operands)[3 * counted :], list(blocks[0].arguments)[counted:]
        kept = [number for number, value in enumerate(begun) if value in self.tensors]
        while kept:
            yielded = passed = self._yielded(blocks[0], {handed[at]: self.tensors[begun[at]] for at in kept})
            if not counted:  # the condition passes its operands to the body, or to the results
                given = zip(blocks[1].arguments, passed, strict=True)
                yielded = self._yielded(blocks[1], {value: shape for value, shape in given if shape is not None})
            same = [at for at in kept if self._is_equal(yielded[at], self.tensors[begun[at]])]
            if len(same) == len(kept):
                for at, (result, shape) in enumerate(zip(loop.results, passed, strict=True)):
                    if shape is not None and (at in kept or not counted):
                        self.tensors[result] = shape
                return
            kept = same

    def _read_branches(self, operation: ir.Operation) -> None:
        """Records the extents that all branches yield."""
        yielded = [self._yielded(region.blocks[0], {}) for region in operation.regions if len(list(region.blocks))]
        for result, shapes in zip(operation.results, zip(*yielded, strict=True), strict=True):
            if shapes[0] is not None and all(self._is_equal(shape, shapes[0]) for shape in shapes):
                self.tensors[result] = shapes[0]

    def _is_equal(self, shape: tuple[Expr, ...] | None, other: tuple[Expr, ...]) -> bool:
        """Whether extents are equal in every call, for example because they have one name in the source."""
        if shape is None or len(shape) != len(other):
            return False
        named = [next((b for a, b in self.equalities if a == extent), extent) for extent in (*shape, *other)]
        return named[: len(shape)] == named[len(shape) :]

    def _yielded(self, block: ir.Block, known: dict[ir.Value, tuple[Expr, ...]]) -> list[tuple[Expr, ...] | None]:
        """The extents of the tensors that a block passes on, given those of its arguments."""
        *operations, last = [entry.operation for entry in block.operations]
        tensors, numbers, equalities = dict(self.tensors), dict(self.numbers), list(self.equalities)
        self.tensors.update(known)
        for operation in operations:
            self.note(operation)
        passed = list(last.operands)[1 if last.name == "scf.condition" else 0 :]
        found = [self.tensors.get(value) for value in passed]
        self.tensors, self.numbers, self.equalities = tensors, numbers, equalities
        return found

    def _read_slice(self, operation: ir.Operation, result: ir.Value, kind: ir.RankedTensorType) -> None:
        segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
        first = segments[0] + segments[1]  # after the source and the offsets
        given = iter(list(operation.operands)[first : first + segments[2]])
        stated = static_or_none(operation, "static_sizes")
        sizes = [self.numbers.get(next(given)) if size is None else size for size in stated]
        shape = [extent for axis in kept_axes(stated, kind) if (extent := sizes[axis]) is not None]
        if len(shape) == kind.rank:
            self.tensors[result] = self._declared(result, tuple(shape))

    def _read_reshape(self, operation: ir.Operation, result: ir.Value) -> None:
        given = operation.operands[1].owner
        if not isinstance(given, ir.Block) and given.name == "tensor.from_elements":
            extents = [self.numbers.get(element) for element in given.operands]
            known = tuple(extent for extent in extents if extent is not None)
            if len(known) == len(extents):
                self.tensors[result] = self._declared(result, known)

    def _read_pad(self, operation: ir.Operation, result: ir.Value, kind: ir.RankedTensorType) -> None:
        given = iter(list(operation.operands)[1:])
        low, high = (
            [
                self.numbers.get(next(given)) if size == _DYNAMIC else size
                for size in ir.DenseI64ArrayAttr(operation.attributes[name])
            ]
            for name in ("static_low", "static_high")
        )
        shape = [
            apply("+", apply("+", extent, before), after)
            for extent, before, after in zip(self.tensors[operation.operands[0]], low, high, strict=True)
            if before is not None and after is not None
        ]
        if len(shape) == kind.rank:
            self.tensors[result] = self._declared(result, tuple(shape))

    def _read_concat(self, operation: ir.Operation, result: ir.Value) -> None:
        axis = ir.IntegerAttr(operation.attributes["dim"]).value
        parts = [self.tensors[operand] for operand in operation.operands if operand in self.tensors]
        if len(parts) < len(operation.operands):
            return
        total: Expr = 0
        for part in parts:
            total = apply("+", total, part[axis])
        shape = tuple(total if position == axis else extent for position, extent in enumerate(parts[0]))
        self.tensors[result] = self._declared(result, shape)

    def _read_sized(self, operation: ir.Operation, result: ir.Value, kind: ir.RankedTensorType, skip: int) -> None:
        given = iter(list(operation.operands)[skip:])
        extents = [
            self.numbers.get(next(given)) if kind.is_dynamic_dim(axis) else kind.shape[axis]
            for axis in range(kind.rank)
        ]
        known = tuple(size for size in extents if size is not None)
        if len(known) == kind.rank:
            self.tensors[result] = known

    def of(self, value: ir.Value) -> tuple[Expr, ...]:
        """The extents of tensor `value`. Raises `CompileError` if they depend on data."""
        if value not in self.tensors and ir.RankedTensorType(value.type).has_static_shape:
            return tuple(ir.RankedTensorType(value.type).shape)
        if value not in self.tensors:
            named = "" if isinstance(value.owner, ir.Block) else f"{source_name(value.owner.operation)}: "
            raise CompileError(
                f"{named}a tensor of type {value.type} whose extents depend on data;"
                " expected extents that follow from the inputs' shapes, equal in all branches and iterations"
            )
        return self.tensors[value]


def _bounded(size: Expr) -> Expr:
    """The size. Raises CompileError if it has so many terms that later steps would take minutes and gigabytes."""
    count, rest = 0, [size]
    while rest:
        count, part = count + 1, rest.pop()
        if count > _MOST_TERMS:
            raise CompileError(
                f"an extent that is calculated with more than {_MOST_TERMS} operations and extents of inputs; expected"
                " fewer: give more extents as numbers, or one name to those that are always equal"
            )
        rest += part[1:] if isinstance(part, list) else []
    return size


def _evaluated(expression: ir.AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr]) -> Expr | None:
    """The value of an affine expression; None if it contains a remainder."""
    if isinstance(expression, ir.AffineConstantExpr):
        return ir.AffineConstantExpr(expression).value
    if isinstance(expression, ir.AffineDimExpr):
        return dims[ir.AffineDimExpr(expression).position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[ir.AffineSymbolExpr(expression).position]
    kinds = {ir.AffineAddExpr: "+", ir.AffineMulExpr: "*", ir.AffineFloorDivExpr: "//", ir.AffineCeilDivExpr: "ceildiv"}
    name = next((name for kind, name in kinds.items() if isinstance(expression, kind)), None)
    if name is None:
        return None
    pair = ir.AffineBinaryExpr(expression)
    left, right = (_evaluated(side, dims, symbols) for side in (pair.lhs, pair.rhs))
    return None if left is None or right is None else apply(name, left, right)


def _names(attribute: ir.DictAttr | None) -> list[str]:
    if attribute is None or DIMS not in attribute:
        return []
    return [ir.StringAttr(name).value for name in ir.ArrayAttr(attribute[DIMS])]
