"""Reads a kernel's function (MLIR) into a `Kernel` (plain data).

Operations that only rename elements (`tensor.extract_slice`, `tensor.pad`, a `linalg.generic` that copies through a
projected permutation) become *views*, which are composed into the maps of the stages that read them. What stages cannot
express (data-dependent addresses, control flow, non-affine maps) raises `Unreadable` with the reason; such kernels take
the generic path.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, compose_maps, identity_map
from motet.compiler.ir.attributes import CONSTANT, constant_number
from motet.compiler.ir.functions import symbol_name
from motet.compiler.kernels.kernel import (
    EXTENT,
    Access,
    Kernel,
    Scalar,
    Size,
    Stage,
    Value,
    row_major,
)
from motet.compiler.kernels.reader.body_reader import BodyReader
from motet.compiler.kernels.reader.generic_reader import read_generic
from motet.compiler.kernels.reader.reading import Number, Unreadable, View, dtype_of
from motet.compiler.kernels.reader.view_reader import ViewReader


def read_kernel(function: ir.Operation) -> Kernel:
    """The `Kernel` that `function` (a `func.func` on tensors with one block) computes.

    Raises `Unreadable` if it has no such form; `computed.py` reads more of them.
    """
    return Reader(function).read()


class Reader(ViewReader):
    def __init__(self, function: ir.Operation) -> None:
        super().__init__()
        self.function = function

    def read(self) -> Kernel:
        block = self.function.regions[0].blocks[0]
        attributes = self._argument_attributes(len(block.arguments))
        for index, argument in enumerate(block.arguments):
            self._read_argument(argument, index, attributes[index])
        operations = list(block.operations)
        for operation in operations[:-1]:
            self._read_operation(operation.operation)
        results = [self._result(operand) for operand in operations[-1].operation.operands]
        return self._finish(results)

    def _argument_attributes(self, count: int) -> list[set[str]]:
        if "arg_attrs" not in self.function.attributes:
            return [set()] * count
        dictionaries = [ir.DictAttr(a) for a in ir.ArrayAttr(self.function.attributes["arg_attrs"])]
        return [{entry.name for entry in dictionary} for dictionary in dictionaries]

    def _read_argument(self, argument: ir.Value, index: int, attributes: set[str]) -> None:
        if not isinstance(argument.type, ir.RankedTensorType):
            raise Unreadable(f"argument of type {argument.type}")
        kind = ir.RankedTensorType(argument.type)
        shape = tuple(
            f"a{index}_{axis}" if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
        )
        self.symbols.update((size, size) for size in shape if isinstance(size, str))
        role = "constant" if CONSTANT in attributes else "argument"
        self.values.append(Value(shape, dtype_of(kind), role, row_major(kind.rank)))
        self.sources[argument] = View(index, identity_map(kind.rank), shape)

    # -- one operation ---------------------------------------------------------------------------

    def _read_operation(self, operation: ir.Operation) -> None:
        name = operation.name
        if name == "tensor.empty":
            self._read_empty(operation)
        elif name == "arith.constant":
            self._read_constant(operation)
        elif name.startswith(("arith.", "math.")) and self._is_scalar(operation):
            self._read_scalar(operation)
        elif name == "linalg.generic":
            read_generic(self, operation)
        elif name == "linalg.fill":
            self.sources[operation.results[0]] = self._number(operation.operands[0])
        elif name == "tensor.pad":
            self._read_pad(operation)
        elif name == "tensor.extract_slice":
            self._read_extract_slice(operation)
        elif name == "tensor.insert_slice":
            self._read_insert_slice(operation)
        elif name == "tensor.concat":
            self._read_concat(operation)
        elif name in ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast"):
            self._read_reshape(operation)
        elif name == "tensor.extract":
            self._read_extract(operation)
        elif name == "tensor.dim":
            self._read_dim(operation)
        elif name == "affine.apply" or (name.startswith("arith.") and _is_size(operation.results[0].type)):
            pass  # sizes, which follow from the operands' shapes
        else:
            raise Unreadable(f"operation {name}")

    def _read_empty(self, operation: ir.Operation) -> None:
        kind = ir.RankedTensorType(operation.results[0].type)
        dynamic = iter(operation.operands)
        self.shapes[operation.results[0]] = tuple(
            self._given_extent(next(dynamic)) if kind.is_dynamic_dim(axis) else kind.shape[axis]
            for axis in range(kind.rank)
        )
        self.sources[operation.results[0]] = None

    def _given_extent(self, value: ir.Value) -> Size | None:
        """The extent that an index value is equal to, if known."""
        return self.extents.get(value)

    def _read_dim(self, operation: ir.Operation) -> None:
        source, axis = (self.sources.get(operand) for operand in operation.operands)
        if isinstance(source, View) and isinstance(axis, int):
            self.extents[operation.results[0]] = source.shape[axis]

    def _read_constant(self, operation: ir.Operation) -> None:
        number = constant_number(operation)
        if number is None:
            raise Unreadable("a constant that is not a splat")
        self.sources[operation.results[0]] = number

    def _read_extract(self, operation: ir.Operation) -> None:
        """Read the element at a constant index."""
        source = self.source_of(operation.operands[0])
        indices = [self.sources.get(operand) for operand in list(operation.operands)[1:]]
        known = [Affine((), index) for index in indices if isinstance(index, int)]
        if len(known) != len(indices):
            raise Unreadable("an element at a computed place")
        if isinstance(source, View):
            source = View(source.base, compose_maps(source.map, known), (), source.padding)
        self.sources[operation.results[0]] = source

    def _is_scalar(self, operation: ir.Operation) -> bool:
        """Whether an operation outside of bodies computes a number, not a size, from known values or tensor
        elements."""
        kind = operation.results[0].type
        return str(kind) in DTYPES and str(kind) != "index" and all(o in self.sources for o in operation.operands)

    def _read_scalar(self, operation: ir.Operation) -> None:
        """Read a number computed outside of bodies: a loop nest of one point. Upstream folds casts of constants only if
        they are exact."""
        dtype = dtype_of(operation.results[0].type)
        source = self.sources[operation.operands[0]]
        if operation.name in ("arith.truncf", "arith.extf") and isinstance(source, float):
            with np.errstate(over="ignore"):
                self.sources[operation.results[0]] = float(np.float64(source).astype(DTYPES[dtype]))
            return
        body = BodyReader(self)
        for operand in operation.operands:
            body.bind(operand, self.sources[operand], (), operand)
        target = self.new_value((), dtype)
        body.read_one(operation)
        self.stages.append(Stage(
            sizes=(), iterators=(), inputs=tuple(body.accesses), outputs=(Access(target, ()),), inits=(None,),
            body=tuple(body.scalars), yields=tuple(body.yields), source=operation.name,
        ))
        self.sources[operation.results[0]] = View(target, (), ())

    def _number(self, value: ir.Value) -> Number:
        source = self.source_of(value)
        if isinstance(source, View) or source is None:
            raise Unreadable("a fill with a computed value")
        return source

    # -- the whole ------------------------------------------------------------------------------

    def _result(self, operand: ir.Value) -> int:
        source = self.source_of(operand)
        if isinstance(source, View):
            value = self.values[source.base]
            plain = source.map == identity_map(value.rank) and source.padding is None
            if value.role == "temporary" and plain and source.shape == value.shape:
                return source.base
            return self.materialised(source, value.dtype).base
        # Every result is written: one of undefined contents, an empty tensor, becomes zeros.
        undefined = source is None and 0 not in self._shape_at(operand)
        return self._filled(0 if undefined else source, operand)

    def _finish(self, results: list[int]) -> Kernel:
        if len(set(results)) != len(results):
            raise Unreadable("one value returned twice")
        accessed = {access.value for stage in self.stages for access in (*stage.inputs, *stage.outputs)}
        accessed |= {init.value for stage in self.stages for init in stage.inits if isinstance(init, Access)}
        externals = [i for i, v in enumerate(self.values) if v.role != "temporary" and i in accessed]
        rest = [i for i, v in enumerate(self.values) if v.role == "temporary" and i not in results]
        order = externals + results + rest
        number = {old: new for new, old in enumerate(order)}
        values = tuple(
            replace(
                self.values[i],
                role="result" if i in results else self.values[i].role,
                shape=tuple(self.find(size) for size in self.values[i].shape),
            )
            for i in order
        )
        stages = tuple(self._renumber(stage, number) for stage in self.stages)
        # A loop may have the extent of an argument that no stage reads, such as the window of a pooling, and so may a
        # number, such as what a mean is divided by.
        numbers = [tuple(scalar.predicate for scalar in stage.body if scalar.op == EXTENT) for stage in stages]
        shapes = (*(value.shape for value in values), *(stage.sizes for stage in stages), *numbers)
        symbols = dict.fromkeys(size for shape in shapes for size in shape if isinstance(size, str))
        name = symbol_name(self.function)
        return Kernel(name, values, stages, tuple(symbols), tuple(externals), tuple(self.checks))

    def _renumber(self, stage: Stage, number: dict[int, int]) -> Stage:
        def move(access: Access) -> Access:
            return replace(access, value=number[access.value])

        return replace(
            stage,
            sizes=tuple(self.find(size) for size in stage.sizes),
            body=tuple(self._resolved(scalar) for scalar in stage.body),
            inputs=tuple(map(move, stage.inputs)),
            outputs=tuple(map(move, stage.outputs)),
            inits=tuple(move(init) if isinstance(init, Access) else init for init in stage.inits),
        )

    def _resolved(self, scalar: Scalar) -> Scalar:
        """`scalar` with its resolved extent, if it is one."""
        if scalar.op != EXTENT:
            return scalar
        size = self.find(scalar.predicate)
        if isinstance(size, int):
            return Scalar("arith.constant", (), scalar.dtype, size)
        return replace(scalar, predicate=size)


def _is_size(kind: ir.Type) -> bool:
    return isinstance(kind, (ir.IndexType, ir.IntegerType))
