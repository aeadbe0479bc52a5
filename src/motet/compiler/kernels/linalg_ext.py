"""Reads kernels that are one operation on whole tensors instead of a loop nest of independent points: scans, sorts,
scatters.

    func @k(%x: 32x1000xf32)                         Whole("scan", inputs=[argument 0], outputs=[number 0, …],
      %0 = fill 0 …                              →         body=[addf 0 1], dimension=1, inclusive)
      %1:2 = tm_tensor.scan dimension(1) …

The initial contents of an output are an argument or a splat. A sort may be followed by slices of its first elements,
`firsts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import CONSTANT, FLOAT_PREDICATES, INTEGER_PREDICATES, constant_number
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DROPS, checks_indices
from motet.compiler.ir.source_names import source_name
from motet.compiler.kernels.kernel import Kernel, Scalar, Size, Value, row_major
from motet.compiler.kernels.reader.reading import Unreadable, dtype_of
from motet.compiler.kernels.strides import ONE, Extent

Kind = Literal["scan", "sort", "scatter"]
_WHOLE_NUMBERS = (ir.IndexType, ir.IntegerType)
_KINDS: dict[str, Kind] = {"tm_tensor.scan": "scan", "tm_tensor.sort": "sort", "tm_tensor.scatter": "scatter"}


@dataclass(frozen=True)
class ExtOperand:
    """A value of the kernel; or a splat of a tensor of `shape`, None if its contents do not matter; or, if `axis` is
    given, positions along it."""

    shape: tuple[Size, ...]
    dtype: str
    value: int = -1
    number: float | int | None = None
    axis: int = -1


@dataclass(frozen=True)
class Whole:
    """`results` maps each result of the kernel to a result of the operation; `firsts` is the number of its elements
    along `dimension`, None for all. Body values are the region's arguments, then its operations. `dimensions` is a
    scatter's map from the components of an index to the tensor's dimensions, `checks` the texts for an index out of
    bounds, if any."""

    kind: Kind
    kernel: Kernel
    inputs: tuple[ExtOperand, ...]
    outputs: tuple[ExtOperand, ...]
    body: tuple[Scalar, ...]
    yields: tuple[int, ...]
    results: tuple[int, ...]
    firsts: tuple[int | None, ...]
    dimension: int = 0
    inclusive: bool = True
    dimensions: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def window(self) -> dict[int, Size]:
        """For a scatter, the extents of the window that one index addresses, by the tensor's (last) dimensions. If a
        dimension is indexed too, the index is the window's start."""
        sizes = self.inputs[0].shape[1:]
        rank = len(self.outputs[0].shape)
        return dict(zip(range(rank - len(sizes), rank), sizes, strict=True))


@dataclass(frozen=True)
class Order:
    """How a sort compares; `unsigned` for unsigned integers."""

    descending: bool
    unsigned: bool


@dataclass(frozen=True)
class Line:
    """A dimension of a tensor, with the sizes before and after it: element (o, i, j) is at (o · length + i) · inner +
    j."""

    outer: Extent
    length: Extent
    inner: Extent

    @property
    def count(self) -> Extent:
        return self.outer * self.inner


def line_of(shape: Sequence[Size], dimension: int) -> Line:
    return Line(product(shape[:dimension]), Extent.of(shape[dimension]), product(shape[dimension + 1 :]))


def product(sizes: Sequence[Size]) -> Extent:
    total = ONE
    for size in sizes:
        total = total * Extent.of(size)
    return total


def is_whole(function: ir.Operation) -> bool:
    """Whether a kernel contains such an operation."""
    return any(entry.operation.name in _KINDS for entry in function.regions[0].blocks[0].operations)


def read_whole(function: ir.Operation) -> Whole:
    """The only operation of the kernel `function`. Raises `Unreadable` if it is anything else."""
    return _ExtReader(function).read()


_ASCENDING = ("olt", "ole", "ult", "ule", "slt", "sle")
_DESCENDING = ("ogt", "oge", "ugt", "uge", "sgt", "sge")


def order_of(whole: Whole) -> Order | None:
    """The order of a sort; None unless it is one comparison of the first tensor's elements."""
    last = whole.body[-1] if len(whole.body) == 1 else None
    if last is None or last.op not in ("arith.cmpf", "arith.cmpi") or set(last.operands) != {0, 1}:
        return None
    if whole.yields != (2 * len(whole.outputs),) or last.predicate not in (*_ASCENDING, *_DESCENDING):
        return None
    descending = (last.predicate in _DESCENDING) != (last.operands == (1, 0))
    return Order(descending, last.op == "arith.cmpi" and last.predicate[0] == "u")


@dataclass
class _Slice:
    result: int
    first: int | None = None


@dataclass
class _ExtReader:
    function: ir.Operation
    values: list[Value] = field(default_factory=list[Value])
    operands: dict[ir.Value, ExtOperand] = field(default_factory=dict[ir.Value, ExtOperand])
    numbers: dict[ir.Value, float | int] = field(default_factory=dict[ir.Value, "float | int"])
    made: dict[ir.Value, _Slice] = field(default_factory=dict[ir.Value, _Slice])
    extents: dict[ir.Value, tuple[ir.Value, int]] = field(default_factory=dict[ir.Value, "tuple[ir.Value, int]"])

    def read(self) -> Whole:
        block = self.function.regions[0].blocks[0]
        self._read_arguments(block)
        operations = [entry.operation for entry in block.operations]
        found = [operation for operation in operations if operation.name in _KINDS]
        if len(found) != 1:
            raise Unreadable(f"operation {next(o.name for o in operations if o.name != 'arith.constant')}")
        for operation in operations[:-1]:
            self._read_operation(operation)
        return self._finish(found[0], list(operations[-1].operands))

    def _read_arguments(self, block: ir.Block) -> None:
        constants: list[bool] = [False] * len(block.arguments)
        if "arg_attrs" in self.function.attributes:
            dictionaries = [ir.DictAttr(a) for a in ir.ArrayAttr(self.function.attributes["arg_attrs"])]
            constants = [CONSTANT in dictionary for dictionary in dictionaries]
        for index, (argument, is_constant) in enumerate(zip(block.arguments, constants, strict=True)):
            if not isinstance(argument.type, ir.RankedTensorType):
                raise Unreadable(f"argument of type {argument.type}")
            shape = _shape(argument.type, f"a{index}_")
            role = "constant" if is_constant else "argument"
            self.values.append(Value(shape, dtype_of(argument.type), role, row_major(len(shape))))
            self.operands[argument] = ExtOperand(shape, dtype_of(argument.type), index)

    def _read_operation(self, operation: ir.Operation) -> None:
        name = operation.name
        if name == "arith.constant":
            number = constant_number(operation)
            if number is None:
                raise Unreadable("a constant that is not a splat")
            self.numbers[operation.results[0]] = number
            if isinstance(operation.results[0].type, ir.RankedTensorType):
                self.operands[operation.results[0]] = self._like(operation.results[0], number)
        elif name == "tensor.empty":
            self.operands[operation.results[0]] = self._like(operation.results[0], None)
        elif name == "linalg.generic" and self._filling(operation) is not None:
            self.operands[operation.results[0]] = self._like(operation.results[0], self._filling(operation))
        elif name == "linalg.generic" and (axis := _axis(operation)) is not None:
            like = self._like(operation.results[0], None)
            self.operands[operation.results[0]] = replace(like, axis=axis)
        elif name in _KINDS:
            self.made.update((result, _Slice(k)) for k, result in enumerate(operation.results))
        elif name == "tensor.extract_slice" and operation.operands[0] in self.made:
            self.made[operation.results[0]] = self._slice(operation)
        elif name == "tensor.dim":
            axis = int(self.numbers.get(operation.operands[1], -1))
            self.extents[operation.results[0]] = (operation.operands[0], axis)
        elif not name.startswith(("affine.", "arith.")) or not isinstance(operation.results[0].type, _WHOLE_NUMBERS):
            # Only extents are computed: results have the extents of the inputs.
            raise Unreadable(f"operation {name}")

    def _like(self, value: ir.Value, number: float | int | None) -> ExtOperand:
        kind = value.type
        return ExtOperand(_shape(kind, "?"), dtype_of(kind), number=number)

    def _filling(self, operation: ir.Operation) -> float | int | None:
        """The number with which a generic fills a tensor; None if it does not."""
        body = list(operation.regions[0].blocks[0].operations)
        arguments = operation.regions[0].blocks[0].arguments
        if len(body) == 1 and len(operation.operands) == 2 and body[0].operation.operands[0] == arguments[0]:
            return self.numbers.get(operation.operands[0])
        return None

    def _slice(self, operation: ir.Operation) -> _Slice:
        """A slice of the first elements along one dimension."""
        source = self.made[operation.operands[0]]
        if source.first is not None:
            raise Unreadable("a slice of a slice")
        offsets, sizes, strides = (
            list(ir.DenseI64ArrayAttr(operation.attributes[name]))
            for name in ("static_offsets", "static_sizes", "static_strides")
        )
        whole = ir.RankedTensorType(operation.operands[0].type).shape
        cut = [axis for axis, (size, extent) in enumerate(zip(sizes, whole, strict=True)) if size != extent]
        owner = operation.operands[0].owner.operation
        along = _integer(owner, "dimension")
        if any(offsets) or any(stride != 1 for stride in strides) or cut not in ([], [along]):
            raise Unreadable("a slice that does not begin with the first element")
        dynamic = [axis for axis, size in enumerate(sizes) if size == ir.ShapedType.get_dynamic_size()]
        tensors = [*owner.operands, *owner.results]
        for axis, size in zip(dynamic, list(operation.operands)[1:], strict=True):
            of, extent = self.extents.get(size, (None, -1))
            if axis == along or extent != axis or of not in tensors:
                raise Unreadable("a slice of dynamic size")
        return _Slice(source.result, sizes[along])

    def _finish(self, operation: ir.Operation, returned: Sequence[ir.Value]) -> Whole:
        kind = _KINDS[operation.name]
        given = [self._operand(value) for value in operation.operands]
        inputs = 0
        if "operandSegmentSizes" in operation.attributes:
            inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
        slices = [self.made.get(value) for value in returned]
        if any(each is None for each in slices) or len({(s.result, s.first) for s in slices if s}) != len(slices):
            raise Unreadable("a result that is not computed by the operation")
        results: list[Value] = []
        for value, each in zip(returned, slices, strict=True):
            base = given[0] if kind == "scan" else given[inputs + (each.result if each else 0)]
            shape = list(given[inputs].shape if kind == "sort" else base.shape)
            if len(shape) != ir.RankedTensorType(value.type).rank:
                raise Unreadable("the accumulator of a scan as a result")
            if each is not None and each.first is not None:
                shape[_integer(operation, "dimension")] = each.first
            results.append(Value(tuple(shape), base.dtype, "result", row_major(len(shape))))
        if any(isinstance(size, str) and size.startswith("?") for value in results for size in value.shape):
            raise Unreadable("a result of unknown extents")
        wanted = {inputs + each.result for each in slices if each}
        needed = [one for k, one in enumerate(given) if kind != "sort" or k == 0 or k in wanted]
        read = {operand.value for operand in needed if operand.value >= 0}
        order = [index for index in range(len(self.values)) if index in read]
        number = {index: position for position, index in enumerate(order)}
        values = (*(self.values[index] for index in order), *results)
        symbols = dict.fromkeys(size for value in values for size in value.shape if isinstance(size, str))
        name = symbol_name(self.function)
        moved = [
            replace(one, value=number.get(one.value, -1)) for one in given
        ]
        body, yields = _body(operation.regions[0].blocks[0])
        return Whole(
            kind, Kernel(name, values, (), tuple(symbols), tuple(order)), tuple(moved[:inputs]),
            tuple(moved[inputs:]), body, yields, tuple(each.result for each in slices if each),
            tuple(each.first for each in slices if each), _integer(operation, "dimension"),
            "inclusive" in operation.attributes and ir.BoolAttr(operation.attributes["inclusive"]).value,
            tuple(ir.DenseI64ArrayAttr(operation.attributes["dimension_map"])) if kind == "scatter" else (),
            (source_name(operation),) if self._tells(operation) else (),
        )

    def _tells(self, operation: ir.Operation) -> bool:
        """Whether an index out of bounds is an error of the call."""
        checked = operation.name == "tm_tensor.scatter" and DROPS not in operation.attributes
        return checked and checks_indices(self.function)

    def _operand(self, value: ir.Value) -> ExtOperand:
        if value not in self.operands:
            raise Unreadable(f"value of type {value.type} from outside")
        return self.operands[value]


def _axis(operation: ir.Operation) -> int | None:
    """The dimension along which a generic writes positions; None if it does not."""
    block = operation.regions[0].blocks[0]
    names = [entry.operation.name for entry in block.operations]
    if names != ["linalg.index", "arith.index_cast", "linalg.yield"] or len(operation.operands) != 1:
        return None
    maps = list(ir.ArrayAttr(operation.attributes["indexing_maps"]))
    identity = ir.AffineMap.get_identity(len(list(ir.ArrayAttr(operation.attributes["iterator_types"]))))
    if ir.AffineMapAttr(maps[0]).value != identity:
        return None
    return ir.IntegerAttr(block.operations[0].operation.attributes["dim"]).value


def _integer(operation: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(operation.attributes[name]).value if name in operation.attributes else 0


def _shape(kind: ir.Type, prefix: str) -> tuple[Size, ...]:
    ranked = ir.RankedTensorType(kind)
    return tuple(
        f"{prefix}{axis}" if ranked.is_dynamic_dim(axis) else ranked.shape[axis] for axis in range(ranked.rank)
    )


def _body(block: ir.Block) -> tuple[tuple[Scalar, ...], tuple[int, ...]]:
    """The operations of a region, and the values that it yields."""
    position = {argument: index for index, argument in enumerate(block.arguments)}
    scalars: list[Scalar] = []
    for entry in block.operations:
        operation = entry.operation
        if any(operand not in position for operand in operation.operands):
            raise Unreadable(f"{operation.name} of a value from outside the region")
        operands = tuple(position[operand] for operand in operation.operands)
        if operation.name == "tm_tensor.yield":
            return tuple(scalars), operands
        if not operation.name.startswith(("arith.", "math.")) or len(operation.results) != 1:
            raise Unreadable(f"operation {operation.name} inside a region")
        dtype = dtype_of(operation.results[0].type)
        number, predicate = None, ""
        if operation.name == "arith.constant":
            number = constant_number(operation)
        elif operation.name in ("arith.cmpf", "arith.cmpi"):
            names = FLOAT_PREDICATES if operation.name == "arith.cmpf" else INTEGER_PREDICATES
            predicate = names[ir.IntegerAttr(operation.attributes["predicate"]).value]
        position[operation.results[0]] = len(block.arguments) + len(scalars)
        scalars.append(Scalar(operation.name, operands, dtype, number, predicate))
    raise Unreadable("a region without a terminator")
