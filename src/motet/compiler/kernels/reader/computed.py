"""Reads kernels that `function_reader.py` cannot, for code generators with the scalars `tensor.extract` and
`tensor.dim`: tensors read at computed indices, extents as numbers, and extents that are not an argument's.

    %p = tensor.pad %x low[1] high[1] : tensor<?xf32> to tensor<?xf32>     an extent of its own, which a loop over it
    %y = linalg.generic … ins(%p), outs(%e : tensor<?xf32>)                takes from the result, and may be unused
    %n = tensor.dim %x, %c0 ; %f = arith.sitofp …                         numbers of no dimensions
    tensor.concat dim(0) %a, %b : tensor<?xf32>, tensor<?xf32>            d0 < dim a ? a[d0] : b[d0 - dim a]
    tensor.extract_slice %x[%k] [5] [1]                                   x[%k + d0]

Assertions of the program are omitted: extents that do not fit are errors of the call (`Signature.constraints`); indices
out of bounds are clamped, and reported if the program itself computed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.ir.attributes import static_or_none
from motet.compiler.ir.program import checks_indices
from motet.compiler.kernels.kernel import EXTENT, Access, Kernel, Scalar, Size, Stage
from motet.compiler.kernels.reader.body_reader import BodyReader
from motet.compiler.kernels.reader.extents import ExtentReader
from motet.compiler.kernels.reader.reading import Source, Unreadable, View, dtype_of
from motet.compiler.kernels.reader.view_reader import kept_dimensions, padding_value


def read_computed(function: ir.Operation) -> Kernel:
    """Read `function` as a composed `Kernel`. Raises `Unreadable` if it has no such form."""
    return _Computed(function).composed()


class _Computed(ExtentReader):
    gathers = True

    def __init__(self, function: ir.Operation) -> None:
        super().__init__(function)
        self.checks_indices = checks_indices(function)
        self._deferred: dict[ir.Value, ir.Operation] = {}  # index arithmetic that is not used yet

    # -- numbers ------------------------------------------------------------------------------------

    def _read_operation(self, operation: ir.Operation) -> None:
        name = operation.name
        if name == "cf.assert":
            return
        arithmetic = name.startswith("arith.") and name != "arith.constant"
        if name in ("tensor.dim", "affine.apply") or (arithmetic and not self._is_scalar(operation)):
            if name == "tensor.dim":
                super()._read_operation(operation)
            self._deferred[operation.results[0]] = operation
        elif name == "tensor.from_elements" and len(operation.operands) == 1:
            self._read_element(operation)
        elif name == "tensor.concat" and self._is_dynamic(operation):
            self._read_dynamic_concat(operation)
        elif name == "tensor.extract_slice" and None in static_or_none(operation, "static_offsets"):
            self._read_moved_slice(operation)
        else:
            super()._read_operation(operation)

    def source_of(self, value: ir.Value) -> Source:
        operation = self._deferred.pop(value, None)
        if operation is None:
            return super().source_of(value)
        if operation.name == "tensor.dim":
            self._read_extent(value)
            return super().source_of(value)
        for operand in operation.operands:
            self.source_of(operand)
        if operation.name == "affine.apply":
            self._read_apply(operation)
        else:
            self._read_scalar(operation)
        return super().source_of(value)

    def _read_extent(self, value: ir.Value) -> None:
        """Read an extent as a number."""
        extent = self.extents.get(value)
        if extent is None:
            raise Unreadable("the extent of a tensor without a shape")
        if isinstance(extent, int):
            self.sources[value] = extent
            return
        target = self.new_value((), "index")
        self._add((), [], target, [Scalar(EXTENT, (), "index", None, extent)], 1, "tensor.dim")
        self.sources[value] = View(target, (), ())

    def _read_apply(self, operation: ir.Operation) -> None:
        body = BodyReader(self)
        for operand in operation.operands:
            body.bind(operand, self.sources[operand], (), operand)
        target = self.new_value((), "index")
        yielded = body.read_apply(operation)
        self._add((), body.accesses, target, body.scalars, yielded, operation.name)
        self.sources[operation.results[0]] = View(target, (), ())

    def _read_element(self, operation: ir.Operation) -> None:
        """Read a tensor of one number."""
        source = self.source_of(operation.operands[0])
        if isinstance(source, View):
            rank = ir.RankedTensorType(operation.results[0].type).rank
            map_ = tuple(Affine((), entry.constant) for entry in source.map)
            source = View(source.base, map_, (1,) * rank, source.padding)
        self.sources[operation.results[0]] = source

    def _add(
        self, sizes: tuple[Size, ...], inputs: Sequence[Access], target: int, body: Sequence[Scalar], yielded: int,
        source: str,
    ) -> None:
        """Add a stage without reductions that writes all of `target`."""
        self.stages.append(Stage(
            sizes=sizes, iterators=("parallel",) * len(sizes), inputs=tuple(inputs),
            outputs=(Access(target, identity_map(len(sizes))),), inits=(None,), body=tuple(body), yields=(yielded,),
            source=source,
        ))

    # -- padding ------------------------------------------------------------------------------------

    def _padding_of(self, value: ir.Value) -> float | int:
        return 0 if self._is_computed(value) else super()._padding_of(value)

    def _is_computed(self, value: ir.Value) -> bool:
        """Whether a padding value is a number in a tensor."""
        return value in self._deferred or isinstance(self.sources.get(value), View)

    def _read_pad(self, operation: ir.Operation) -> None:
        filling = padding_value(operation)
        before = self.source_of(operation.operands[0])
        super()._read_pad(operation)
        if not self._is_computed(filling):
            return
        number = self.source_of(filling)
        padded = self.sources[operation.results[0]]
        if not isinstance(number, View) or not isinstance(padded, View) or not isinstance(before, View):
            raise Unreadable("a computed padding value")
        rank, dtype = len(padded.shape), dtype_of(operation.results[0].type)
        writing = _Writing(rank, 2)
        inside = writing.add("arith.constant", (), "i1", 1)
        low = static_or_none(operation, "static_low")
        for axis, (begin, extent) in enumerate(zip(low, before.shape, strict=True)):
            place = writing.add("linalg.index", (), "index", axis)
            first = writing.extent(begin or 0)
            end = writing.add("arith.addi", (first, writing.extent(extent)), "index")
            for predicate, bound in (("sge", first), ("slt", end)):
                test = writing.add("arith.cmpi", (place, bound), "i1", None, predicate)
                inside = writing.add("arith.andi", (inside, test), "i1")
        found = writing.add("arith.select", (inside, 0, 1), dtype)
        origin = tuple(Affine((), entry.constant) for entry in number.map)
        inputs = [Access(padded.base, padded.map, padded.padding), Access(number.base, origin, number.padding)]
        target = self.new_value(padded.shape, dtype)
        self._add(padded.shape, inputs, target, writing.body, found, f"{operation.name} {operation.location}")
        self.sources[operation.results[0]] = View(target, identity_map(rank), padded.shape)

    # -- data movement -------------------------------------------------------------------------------

    def _is_dynamic(self, operation: ir.Operation) -> bool:
        axis = ir.IntegerAttr(operation.attributes["dim"]).value
        return any(ir.RankedTensorType(operand.type).is_dynamic_dim(axis) for operand in operation.operands)

    def _read_dynamic_concat(self, operation: ir.Operation) -> None:
        axis = ir.IntegerAttr(operation.attributes["dim"]).value
        parts = [self._table(operand) for operand in operation.operands]
        rank = len(parts[0].shape)
        kind = ir.RankedTensorType(operation.results[0].type)
        extent = self._new_extent() if kind.is_dynamic_dim(axis) else kind.shape[axis]
        shape = tuple(extent if i == axis else parts[0].shape[i] for i in range(rank))
        writing = _Writing(rank, len(parts))
        places = [writing.add("linalg.index", (), "index", i) for i in range(rank)]
        found = writing.add("tensor.extract", (0, *places), dtype_of(kind))
        start = writing.add("arith.constant", (), "index", 0)
        for number in range(1, len(parts)):
            before = parts[number - 1].shape[axis]
            start = writing.add("arith.addi", (start, writing.extent(before)), "index")
            moved = [writing.add("arith.subi", (p, start), "index") if i == axis else p for i, p in enumerate(places)]
            taken = writing.add("tensor.extract", (number, *moved), dtype_of(kind))
            inside = writing.add("arith.cmpi", (places[axis], start), "i1", None, "sge")
            found = writing.add("arith.select", (inside, taken, found), dtype_of(kind))
        inputs = [Access(part.base, (Affine(),) * rank) for part in parts]
        target = self.new_value(shape, dtype_of(kind))
        self._add(shape, inputs, target, writing.body, found, f"{operation.name} {operation.location}")
        self.sources[operation.results[0]] = View(target, identity_map(rank), shape)

    def _read_moved_slice(self, operation: ir.Operation) -> None:
        source = self._table(operation.operands[0])
        segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
        given = list(operation.operands)[1:]
        strides = static_or_none(operation, "static_strides")
        if None in strides:
            raise Unreadable("a slice with a computed stride")
        offsets = static_or_none(operation, "static_offsets")
        sizes = static_or_none(operation, "static_sizes")
        result = ir.RankedTensorType(operation.results[0].type)
        drawn = [None if result.is_dynamic_dim(axis) else result.shape[axis] for axis in range(result.rank)]
        kept = kept_dimensions(sizes, drawn)
        computed = iter(given[segments[1] : segments[1] + segments[2]])
        extents = [self._slice_extent(next(computed)) if size is None else size for size in sizes]
        shape = tuple(extents[axis] for axis in kept)
        body = BodyReader(self)
        origin = (Affine(),) * len(source.shape)
        body.bind(operation.operands[0], source, origin, operation.operands[0])
        moves = iter(given[: segments[1]])
        begins: list[Callable[[_Writing], int]] = []
        for offset in offsets:
            begins.append(self._begin_of(body, next(moves) if offset is None else offset))
        writing = _Writing(len(shape), len(body.accesses))
        places: list[int] = []
        for axis, (begin, stride) in enumerate(zip(begins, strides, strict=True)):
            place = begin(writing)
            if axis in kept:
                step = writing.add("linalg.index", (), "index", kept.index(axis))
                if stride != 1:
                    step = writing.add("arith.muli", (step, writing.extent(stride or 1)), "index")
                place = writing.add("arith.addi", (step, place), "index")
            places.append(place)
        found = writing.add("tensor.extract", (0, *places), dtype_of(result))
        target = self.new_value(shape, dtype_of(result))
        self._add(shape, body.accesses, target, writing.body, found, f"{operation.name} {operation.location}")
        self.sources[operation.results[0]] = View(target, identity_map(len(shape)), shape)

    def _begin_of(self, body: BodyReader, offset: ir.Value | int) -> Callable[[_Writing], int]:
        """A function that writes a slice's offset into a body and returns its number."""
        source = offset if isinstance(offset, int) else self.source_of(offset)
        if isinstance(source, int):
            number = source
            return lambda writing: writing.extent(number)
        if not isinstance(source, View) or source.shape or isinstance(offset, int):
            raise Unreadable("a slice with a computed offset")
        body.bind(offset, source, (), offset)
        position = body.names[offset][1]
        return lambda _: position

    def _table(self, operand: ir.Value) -> View:
        """A whole tensor, to be read at computed indices."""
        source = self.source_of(operand)
        if not isinstance(source, View):
            raise Unreadable("a computed place in a constant")
        value = self.values[source.base]
        whole = source.map == identity_map(value.rank) and source.shape == value.shape and source.padding is None
        return source if whole else self.materialised(source, dtype_of(operand.type))


class _Writing:
    """Writes a body over `rank` loops with `inputs` and one output; methods return the numbers of its values."""

    def __init__(self, rank: int, inputs: int) -> None:
        self.rank = rank
        self.body: list[Scalar] = []
        self._first = inputs + 1

    def add(
        self, op: str, operands: tuple[int, ...], dtype: str, value: int | None = None, predicate: str = ""
    ) -> int:
        self.body.append(Scalar(op, operands, dtype, value, predicate))
        return self._first + len(self.body) - 1

    def extent(self, size: Size) -> int:
        """An extent, or a number, as a value."""
        if isinstance(size, int):
            return self.add("arith.constant", (), "index", size)
        return self.add(EXTENT, (), "index", None, size)
