"""settle-suppressions: in the `torch` dialect, lowers the suppression of overlapping boxes to one loop.

    %rows, %count = torch.operator "onnx.SuppressBoxes"(%boxes, %order, %scores, %most, %overlap, %least)
 →  %rows, %count = scf.for %class … { scf.for %place … {
        a box is kept unless it overlaps with one that this class has kept, which `%kept` has side by side } }

`data_dependent.py` writes the operator for NonMaxSuppression; `%order` has the boxes by descending score. The work is
that of the boxes compared: none is compared after its class has `%most` boxes, or after the first score not above
`%least`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, know_operations, replace_all
from motet.compiler.frontends.torch.operands import operators
from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.current import create
from motet.compiler.ir.loops import repeat
from motet.compiler.ir.sizes import constant_index, element_at
from motet.compiler.operators.arithmetic import Floats, Real, Truth
from motet.compiler.operators.pointwise import clamped

OPERATOR = "SuppressBoxes"
_AT_ONCE = 64  # kept boxes that are compared before the next look whether one of them overlaps
_TOTAL, _TAKEN = 0, 1  # places of numbers in a tensor: kernels of GPUs return tensors alone
_FIELDS = 5  # of a kept box: its lower and upper end along both axes, and its area


@dataclass(frozen=True)
class _BoxEnds:
    """The ends of a box along both axes, and its area."""

    low: tuple[Real, Real]
    high: tuple[Real, Real]
    area: Real

    @property
    def fields(self) -> list[Real]:
        return [*self.low, *self.high, self.area]


@dataclass(frozen=True)
class _Suppression:
    """The operands of the operator as tensors of MLIR: boxes [batches, boxes, 4], `order` and `scores` [batches,
    classes, boxes], and numbers of rank 0."""

    boxes: ir.Value
    order: ir.Value
    scores: ir.Value
    most: ir.Value
    overlap: ir.Value
    least: ir.Value | None
    centred: bool

    @property
    def extents(self) -> tuple[int, int, int]:
        batches, classes, boxes = ir.RankedTensorType(self.order.type).shape
        return batches, classes, boxes

    def rows(self) -> list[ir.Value]:
        """A tensor whose first rows are the batch, class and number of each kept box, and the number of these rows, a
        tensor of one element."""
        batches, classes, boxes = self.extents
        word = ir.IntegerType.get_signless(64)
        room = -(-boxes // _AT_ONCE) * _AT_ONCE
        most, overlap = (create("tensor.extract", _element(each), [each]) for each in (self.most, self.overlap))
        most = create("arith.index_cast", ir.IndexType.get(), [most])
        least = None if self.least is None else create("tensor.extract", _element(self.least), [self.least])
        made = create("tensor.empty", ir.RankedTensorType.get([batches * classes * boxes, 3], word), [])
        kept = create("tensor.empty", ir.RankedTensorType.get([_FIELDS, room], _element(self.boxes)), [])

        def each_class(number: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            rows, counts, before = carried
            place = _ClassOfBoxes(*_divided(number, classes), least, most, overlap)
            own = _without_areas(before)
            counts = _with_count(counts, _TAKEN, constant_index(0))
            return repeat(
                constant_index(0), constant_index(boxes), [rows, counts, own],
                lambda at, values: self._visit(place, at, values))  # fmt: skip

        zero = create("arith.constant", word, [], {"value": ir.IntegerAttr.get(word, 0)})
        counts = create("tensor.from_elements", ir.RankedTensorType.get([2], word), [zero, zero])
        rows, counts, _ = repeat(
            constant_index(0), constant_index(batches * classes), [made, counts, kept], each_class)
        total = create("tensor.extract", word, [counts, constant_index(_TOTAL)])
        return [rows, create("tensor.from_elements", ir.RankedTensorType.get([1], word), [total])]

    def _visit(self, place: _ClassOfBoxes, at: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Visits the box of rank `at`; `carried` are the rows, the numbers of rows and of boxes of this
        class, and these boxes."""
        taken = _count(carried[1], _TAKEN)
        open_ = Truth(arith.CmpIOp(arith.CmpIPredicate.slt, taken, place.most).result)
        if place.least is not None:
            score = create("tensor.extract", _element(self.scores), [self.scores, place.batch, place.class_, at])
            open_ &= Real(score) > Real(place.least)

        def visited() -> Sequence[ir.Value]:
            number = create("tensor.extract", _element(self.order), [self.order, place.batch, place.class_, at])
            number = create("arith.index_cast", ir.IndexType.get(), [number])
            box = self._box(place.batch, number)
            free = self._is_free(box, taken, carried[2], place.overlap)
            return _either(free, lambda: self._keep(place, number, box, carried), carried)

        return _either(open_, visited, carried)

    def _keep(
        self, place: _ClassOfBoxes, number: ir.Value, box: _BoxEnds, carried: Sequence[ir.Value]
    ) -> Sequence[ir.Value]:
        rows, counts, kept = carried
        total, taken = _count(counts, _TOTAL), _count(counts, _TAKEN)
        _, _, boxes = self.extents
        row = clamped(total, constant_index(ir.RankedTensorType(rows.type).shape[0] - 1))  # bounds are known
        place_ = clamped(taken, constant_index(boxes - 1))
        word = ir.IntegerType.get_signless(64)
        for column, index in enumerate((place.batch, place.class_, number)):
            value = create("arith.index_cast", word, [index])
            rows = create("tensor.insert", rows.type, [value, rows, row, constant_index(column)])
        for column, value in enumerate(box.fields):
            kept = create("tensor.insert", kept.type, [value, kept, constant_index(column), place_])
        counts = _with_count(_with_count(counts, _TOTAL, _next(total)), _TAKEN, _next(taken))
        return [rows, counts, kept]

    @property
    def _floats(self) -> Floats:
        return Floats(_element(self.boxes))

    def _box(self, batch: ir.Value, number: ir.Value) -> _BoxEnds:
        n = self._floats
        parts = [Real(element_at(self.boxes, [batch, number, constant_index(part)])) for part in range(4)]
        if self.centred:
            x, y, width, height = parts
            halves = [(middle, extent * 0.5) for middle, extent in ((y, height), (x, width))]
            sides = [(middle - half, middle + half) for middle, half in halves]
        else:
            sides = [(n.least(a, b), n.most(a, b)) for a, b in ((parts[0], parts[2]), (parts[1], parts[3]))]
        (low, high), (left, right) = sides
        return _BoxEnds((low, left), (high, right), (high - low) * (right - left))

    def _is_free(self, box: _BoxEnds, taken: ir.Value, kept: ir.Value, overlap: ir.Value) -> ir.Value:
        """Whether `box` overlaps with none of the first `taken` boxes of `kept`. The areas behind them are 0."""
        rounded = create("arith.addi", taken.type, [taken, constant_index(_AT_ONCE - 1)])
        parts = create("arith.divui", taken.type, [rounded, constant_index(_AT_ONCE)])
        parts = clamped(parts, constant_index(ir.RankedTensorType(kept.type).shape[1] // _AT_ONCE))  # bounds are known
        true, false = Truth.of(True), Truth.of(False)

        def some(part: ir.Value, free: Sequence[ir.Value]) -> Sequence[ir.Value]:
            first = create("arith.muli", part.type, [part, constant_index(_AT_ONCE)])
            end = create("arith.addi", part.type, [first, constant_index(_AT_ONCE)])

            def compared() -> Sequence[ir.Value]:
                met = repeat(first, end, [false], lambda at, met: [
                    Truth(met[0]) | self._overlaps(box, kept, at, overlap)])
                return [~Truth(met[0])]

            return _either(free[0], compared, [false])

        return repeat(constant_index(0), parts, [true], some)[0]

    def _overlaps(self, box: _BoxEnds, kept: ir.Value, at: ir.Value, overlap: ir.Value) -> Truth:
        n = self._floats
        fields = [Real(element_at(kept, [constant_index(each), at])) for each in range(_FIELDS)]
        other = _BoxEnds((fields[0], fields[1]), (fields[2], fields[3]), fields[4])
        sides = [
            n.most(n.least(high, high_) - n.most(low, low_), 0)
            for low, high, low_, high_ in zip(box.low, box.high, other.low, other.high, strict=True)]  # fmt: skip
        common = sides[0] * sides[1]
        part = common / (box.area + other.area - common)
        real = [value > 0 for value in (common, box.area, other.area)]
        return (part > Real(overlap)) & (real[0] & (real[1] & real[2]))


@dataclass(frozen=True)
class _ClassOfBoxes:
    """The batch and class whose boxes are visited, and the limits for all of them."""

    batch: ir.Value
    class_: ir.Value
    least: ir.Value | None
    most: ir.Value
    overlap: ir.Value


def settle_suppressions(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        found = operators(module, f"onnx.{OPERATOR}")
        if found:
            know_operations(module)
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                tensors = [builtin(operand) for operand in operator.operands]
                boxes, order, scores, most, overlap, *least = tensors
                centred = "torch.onnx.centred" in operator.attributes
                rows = _Suppression(boxes, order, scores, most, overlap, least[0] if least else None, centred).rows()
                assert all(kind_of(result) is not None for result in operator.results)
                replace_all(operator, rows)


def _either(condition: ir.Value, then: Callable[[], Sequence[ir.Value]], other: Sequence[ir.Value]) -> list[ir.Value]:
    """`then` if `condition` holds, `other` if not."""
    kinds = [value.type for value in other]
    made = ir.Operation.create("scf.if", results=kinds, operands=[condition], regions=2)
    for region, values in zip(made.regions, (then, lambda: other), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            ir.Operation.create("scf.yield", operands=list(values()))
    return list(made.results)


def _without_areas(kept: ir.Value) -> ir.Value:
    """`kept` with areas of 0."""
    kind = ir.RankedTensorType(kept.type)
    zero = create("arith.constant", kind.element_type, [], {"value": ir.FloatAttr.get(kind.element_type, 0)})
    first = constant_index(_FIELDS - 1)
    return repeat(constant_index(0), constant_index(kind.shape[1]), [kept], lambda at, values: [
        create("tensor.insert", kind, [zero, values[0], first, at])])[0]


def _divided(number: ir.Value, by: int) -> tuple[ir.Value, ir.Value]:
    divisor = constant_index(by)
    return create("arith.divui", number.type, [number, divisor]), create("arith.remui", number.type, [number, divisor])


def _count(counts: ir.Value, place: int) -> ir.Value:
    number = create("tensor.extract", _element(counts), [counts, constant_index(place)])
    return create("arith.index_cast", ir.IndexType.get(), [number])


def _with_count(counts: ir.Value, place: int, value: ir.Value) -> ir.Value:
    number = create("arith.index_cast", _element(counts), [value])
    return create("tensor.insert", counts.type, [number, counts, constant_index(place)])


def _next(index: ir.Value) -> ir.Value:
    return create("arith.addi", index.type, [index, constant_index(1)])


def _element(tensor: ir.Value) -> ir.Type:
    return ir.RankedTensorType(tensor.type).element_type
