"""Adds bounds checks to a kernel on tensors, at each access to an element or a slice at a computed index.

    %v = tensor.extract %t[%i]           %n = tensor.dim %t, %c0
                                    →    %in = arith.cmpi ult, %i, %n
                                         cf.assert %in, "1"
                                         %v = tensor.extract %t[%i]

The message of each assertion, including the program's own, is replaced by its number, from 1. Accesses that are known
to be in bounds get no check. `check_loops.py` moves assertions out of loops; `check_exits.py` lowers them to code that
ends the kernel's task and reports the failure to the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.attributes import kept_axes, static_or_none
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.intervals import Intervals
from motet.compiler.ir.sizes import static_extent
from motet.compiler.ir.source_names import source_name
from motet.compiler.scheduling.carried import written_into

# What upstream's lowering asserts about the indices of a gather; the accesses at these indices have their own checks.
_OF_INDICES = ("index must be smaller than dim size", "index must be larger or equal to 0")

_INDEXED = {"tensor.extract": 0, "memref.load": 0, "tensor.insert": 1, "memref.store": 1}  # the operand that is indexed
_INSERTED = ("tensor.insert_slice", "tensor.parallel_insert_slice")
_SLICED = {"tensor.extract_slice": 0, "memref.subview": 0, **dict.fromkeys(_INSERTED, 1)}


def add_checks(function: ir.Operation, unchecked: bool) -> list[str]:
    """Add assertions to `function`; returns the texts of all its assertions. If `unchecked`, adds no bounds checks."""
    checks = _Checks()
    for operation in all_operations(function):
        if operation.name == "cf.assert":
            checks.take(operation, function)
        elif not unchecked and operation.name in _INDEXED:
            checks.check_element(operation)
        elif not unchecked and operation.name in _SLICED:
            checks.check_slice(operation)
            if operation.name in _INSERTED:
                checks.check_insertion(operation)
        elif not unchecked and operation.name == "tensor.pad":
            checks.check_padding(operation)
    return checks.texts


class _Checks:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.intervals = Intervals()

    def take(self, assertion: ir.Operation, function: ir.Operation) -> None:
        """Number an assertion of the program."""
        text = ir.StringAttr(assertion.attributes["msg"]).value
        if text in _OF_INDICES and assertion.parent.operation != function:
            assertion.erase()
            return
        name = source_name(assertion)
        assertion.attributes["msg"] = self._number(f"{name}: {text}" if text else name)

    def _number(self, text: str) -> ir.StringAttr:
        if text not in self.texts:
            self.texts.append(text)
        return ir.StringAttr.get(str(self.texts.index(text) + 1))

    def check_element(self, operation: ir.Operation) -> None:
        """Check that every index is below the extent of its axis."""
        number = _INDEXED[operation.name]
        tensor, *indices = list(operation.operands)[number:]
        where = source_name(operation)
        with ir.InsertionPoint(operation), operation.location:
            for axis, index in enumerate(indices):
                extent = static_extent(ir.ShapedType(tensor.type), axis)
                if extent is None or not self.intervals.is_inside(index, extent):
                    self._assert("ult", index, _extent(tensor, axis), where)

    def check_slice(self, operation: ir.Operation) -> None:
        """Check that the first and last elements of every axis are in bounds, and the size is at most the extent."""
        tensor = operation.operands[_SLICED[operation.name]]
        offsets, sizes, strides = _slice(operation)
        where = f"{source_name(operation)}: slice"
        with _before(operation), operation.location:
            for axis, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
                extent = static_extent(ir.ShapedType(tensor.type), axis)
                numbers = (extent, offset, size, stride)
                is_whole = offset == 0 and stride == 1 and _is_extent(size, tensor, axis)
                if not is_whole and not all(isinstance(number, int) for number in numbers):
                    self._check_range(tensor, axis, (offset, size, stride), where)

    def check_insertion(self, operation: ir.Operation) -> None:
        """Check that what is inserted is as long as its place, which the kernel may compute."""
        source, kind = operation.operands[0], ir.RankedTensorType(operation.operands[0].type)
        with _before(operation), operation.location:
            for axis, place in enumerate(kept_axes(static_or_none(operation, "static_sizes"), kind)):
                size = _slice(operation)[1][place]
                if isinstance(size, ir.Value) and not _has_extent(source, axis, size):
                    text = f"axis {axis} of what is inserted is not as long as its place"
                    self._assert("eq", size, _extent(source, axis), f"{source_name(operation)}: {text}")

    def _check_range(
        self, tensor: ir.Value, axis: int, range_: Sequence[ir.Value | int], where: str
    ) -> None:
        extent = _extent(tensor, axis)
        offset, size, stride = map(_value, range_)
        known, length = static_extent(ir.ShapedType(tensor.type), axis), range_[1]
        if known is not None and isinstance(length, int) and range_[2] == 1 and 0 <= length <= known and (
            self.intervals.is_inside(offset, known - length + 1)
        ):
            return
        zero, one = _value(0), _value(1)
        if not self._is_natural_below(offset, tensor, axis):
            self._assert("ule", offset, extent, where)
        self._assert("ule", size, extent, where)
        if range_[2] == 1:
            self._assert("sle", arith.AddIOp(offset, size).result, extent, where)
            return
        # The stride matters only for more than one element; then it is at most the extent, so that nothing wraps
        # around.
        few = arith.CmpIOp(arith.CmpIPredicate.ule, size, one).result
        step = arith.SelectOp(few, zero, stride).result
        if not isinstance(range_[2], int):
            self._assert("uge", arith.AddIOp(extent, extent).result, arith.AddIOp(step, extent).result, where)
        steps = arith.SubIOp(size, one).result
        last = arith.AddIOp(offset, arith.MulIOp(steps, step).result).result
        empty = arith.CmpIOp(arith.CmpIPredicate.eq, size, zero).result
        self._assert("ult", arith.SelectOp(empty, zero, last).result, arith.MaxSIOp(extent, one).result, where)

    def _is_natural_below(self, value: ir.Value, tensor: ir.Value, axis: int) -> bool:
        extent = static_extent(ir.ShapedType(tensor.type), axis)
        return extent is not None and self.intervals.is_inside(value, extent + 1)

    def check_padding(self, operation: ir.Operation) -> None:
        """Check that the padding is not negative, which would read before the source."""
        where = f"{source_name(operation)}: negative padding"
        low, high = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))[1:]
        with ir.InsertionPoint(operation), operation.location:
            for amount in list(operation.operands)[1 : 1 + low + high]:
                least = self.intervals.of(amount)[0]
                if least is None or least < 0:
                    self._assert("sge", amount, _value(0), where)

    def _assert(self, predicate: str, a: ir.Value, b: ir.Value, where: str) -> None:
        holds = arith.CmpIOp(getattr(arith.CmpIPredicate, predicate), a, b).result
        ir.Operation.create("cf.assert", operands=[holds], attributes={"msg": self._number(where)})


def _before(operation: ir.Operation) -> ir.InsertionPoint:
    parent = operation.parent
    of_thread = parent is not None and parent.name == "scf.forall.in_parallel"  # which only has insertions
    return ir.InsertionPoint(parent if parent is not None and of_thread else operation)


def _slice(operation: ir.Operation) -> list[list[ir.Value | int]]:
    """The offsets, sizes and strides of a slice."""
    given = iter(list(operation.operands)[_SLICED[operation.name] + 1 :])
    return [
        [next(given) if value is None else value for value in static_or_none(operation, name)]
        for name in ("static_offsets", "static_sizes", "static_strides")
    ]


def _has_extent(tensor: ir.Value, axis: int, size: ir.Value) -> bool:
    """Whether `size` is the extent that a tensor was made with, or both are extents of arguments, which are compared
    before the call."""
    origin = written_into(tensor)
    if _is_extent(size, tensor, axis) or _is_extent(size, origin, axis):
        return True
    if isinstance(origin.owner, ir.Block):
        measured = not isinstance(size.owner, ir.Block) and size.owner.name == "tensor.dim" and size.owner.operands[0]
        return _is_argument(origin) and bool(measured) and _is_argument(measured)
    made, kind = origin.owner.operation, ir.RankedTensorType(origin.type)
    if made.name == "tensor.extract_slice":
        return _slice(made)[1][kept_axes(static_or_none(made, "static_sizes"), kind)[axis]] == size
    return made.name == "tensor.empty" and made.operands[sum(map(kind.is_dynamic_dim, range(axis)))] == size


def _is_argument(value: ir.Value) -> bool:
    return isinstance(value.owner, ir.Block) and value.owner.owner.name == "func.func"


def _extent(tensor: ir.Value, axis: int) -> ir.Value:
    """The extent of an axis as a value, a constant where it is known."""
    extent = static_extent(ir.ShapedType(tensor.type), axis)
    if extent is not None:
        return _value(extent)
    name = "memref.dim" if isinstance(tensor.type, ir.MemRefType) else "tensor.dim"
    return ir.Operation.create(name, results=[ir.IndexType.get()], operands=[tensor, _value(axis)]).result


def _is_extent(size: ir.Value | int, tensor: ir.Value, axis: int) -> bool:
    """Whether `size` is defined as the extent of `axis`."""
    if isinstance(size, int):
        return size == static_extent(ir.ShapedType(tensor.type), axis)
    owner = size.owner
    if isinstance(owner, ir.Block) or owner.name not in ("tensor.dim", "memref.dim") or owner.operands[0] != tensor:
        return False
    number = owner.operands[1].owner
    return not isinstance(number, ir.Block) and number.name == "arith.constant" and (
        ir.IntegerAttr(number.attributes["value"]).value == axis
    )


def _value(number: ir.Value | int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), number).result if isinstance(number, int) else number
