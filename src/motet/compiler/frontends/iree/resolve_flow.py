"""resolve-flow: replaces operations on tensors of IREE's dialects by upstream's.

    %0 = "hal.tensor.import"(%view) {name = "x"}            →   (the argument %view is a tensor)
    %1 = "flow.tensor.splat"(%v, %n) : … -> tensor<?xf32>   →   %1 = tensor.splat %v[%n]
    %2 = "flow.tensor.reshape"(%1, %m) : … -> tensor<?x2xf32>   →   %2 = tensor.expand_shape (collapse_shape %1)
    %3 = "util.optimization_barrier"(%2)                    →   (%2)
    %4 = "hal.tensor.alias"(%2, %storage)                   →   (a result that is written into the argument %storage)
    %5 = "hal.tensor.export"(%2)                            →   (%2 is returned as a tensor)

The replacement of an operation keeps its device; the device of an import moves to the argument, that of an export to
the result. Fence arguments are removed: a call waits for its inputs, and readers of its results wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from motet.compiler.frontends.iree.tensor_spellings import AFFINITY, BUFFER_VIEW, OPERATIONS
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.program import DESTINATION, NAME
from motet.compiler.passes.base import ModulePass
from motet.errors import CompileError

PIN = "iree.abi.affinity"
_FENCE = "!hal.fence"
_BUFFERS = (BUFFER_VIEW, "!hal.buffer")


@dataclass(frozen=True)
class ResolveFlow(ModulePass):
    """Raises CompileError, at the operation, for operations without an equivalent."""

    name = "resolve-flow"

    def run(self, module: ir.Module) -> None:
        found = [one for one in all_operations(module) if one.name in OPERATIONS]
        for operation in found:
            if rule := _RULES.get(operation.name):
                results = rule(operation)
                for old, new in zip(operation.results, results, strict=True):
                    old.replace_all_uses_with(new)
                operation.erase()
        functions = [one for one in all_operations(module) if one.name == "func.func"]
        for function in functions:
            _Signature(function).resolve()
        left = next((one for one in all_operations(module) if one.name in OPERATIONS), None)
        if left is not None:
            raise CompileError(
                f"{left.name}: its buffer is no argument of the function; expected imports of arguments, and exports "
                "that are returned", locate(left.location),
            )


# -- values --------------------------------------------------------------------------------------


def _create(
    operation: ir.Operation, name: str, result: ir.Type, operands: list[ir.Value],
    attributes: Mapping[str, ir.Attribute] = MappingProxyType({}),
) -> ir.Value:
    """Creates an operation in place of `operation`, on the same device."""
    said = {key: operation.attributes[key] for key in (AFFINITY,) if key in operation.attributes}
    return ir.Operation.create(
        name, results=[result], operands=operands, attributes={**attributes, **said}, loc=operation.location,
        ip=ir.InsertionPoint(operation),
    ).results[0]


def _tensor(operation: ir.Operation, value: ir.Value) -> ir.RankedTensorType:
    if not isinstance(value.type, ir.RankedTensorType):
        raise CompileError(f"{operation.name}: {value.type}; expected a ranked tensor", locate(operation.location))
    return value.type


def _extents(operation: ir.Operation, given: list[ir.Value], kind: ir.RankedTensorType) -> list[ir.Value]:
    """The values in `given` for the dynamic extents of `kind`; checks their number."""
    dynamic = sum(kind.is_dynamic_dim(axis) for axis in range(kind.rank))
    if len(given) != dynamic:
        raise CompileError(
            f"{operation.name}: {len(given)} extents are given; {kind} expects {dynamic}, one for each `?`",
            locate(operation.location),
        )
    return given


def _constant(operation: ir.Operation) -> list[ir.Value]:
    value, kind = operation.attributes["value"], operation.results[0].type
    if not isinstance(value, (ir.DenseElementsAttr, ir.IntegerAttr, ir.FloatAttr)) and "dense_resource" not in str(
        value
    ):
        raise CompileError(f"{operation.name}: {value}; expected a number or dense<…>", locate(operation.location))
    made = _create(operation, "arith.constant", value.type, [], {"value": value})
    return [made if made.type == kind else _create(operation, "tensor.cast", kind, [made])]


def _splat(operation: ir.Operation) -> list[ir.Value]:
    value, *extents = operation.operands
    kind = _tensor(operation, operation.results[0])
    return [_create(operation, "tensor.splat", kind, [value, *_extents(operation, extents, kind)])]


def _empty(operation: ir.Operation) -> list[ir.Value]:
    kind = _tensor(operation, operation.results[0])
    return [_create(operation, "tensor.empty", kind, _extents(operation, list(operation.operands), kind))]


def _same(operation: ir.Operation) -> list[ir.Value]:
    return list(operation.operands)


def _first(operation: ir.Operation) -> list[ir.Value]:
    return [operation.operands[0]]


def _reshape(operation: ir.Operation) -> list[ir.Value]:
    source, *given = operation.operands
    old, kind = _tensor(operation, source), _tensor(operation, operation.results[0])
    if old.element_type != kind.element_type:
        raise CompileError(
            f"{operation.name}: from {old.element_type} to {kind.element_type}; expected one element type",
            locate(operation.location),
        )
    if kind == old:
        return [source]
    extents = _extents(operation, given, kind)
    # Through one dimension; tensor.reshape would need a tensor of extents, to be placed and transferred.
    return [_split(operation, _merge(operation, source, old), kind, extents)]


def _merge(operation: ir.Operation, value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """Collapses all dimensions to one; a tensor of rank 0 gets one element."""
    unknown = ir.ShapedType.get_dynamic_size()
    total = unknown if unknown in kind.shape else prod(kind.shape)
    merged = ir.RankedTensorType.get([total], kind.element_type)
    if kind.rank == 1:
        return value
    if kind.rank == 0:
        return _split(operation, value, merged, [])
    return _create(operation, "tensor.collapse_shape", merged, [value], {"reassociation": _all(kind.rank)})


def _split(operation: ir.Operation, value: ir.Value, kind: ir.RankedTensorType, extents: list[ir.Value]) -> ir.Value:
    """Expands a tensor of rank 0 or 1 to the extents of `kind`, with `extents` as the dynamic ones."""
    rank = ir.RankedTensorType(value.type).rank
    if kind.rank == 0:
        groups = ir.ArrayAttr.get([])
        if ir.RankedTensorType(value.type).shape[0] != 1:
            value = _create(operation, "tensor.cast", ir.RankedTensorType.get([1], kind.element_type), [value])
        return _create(operation, "tensor.collapse_shape", kind, [value], {"reassociation": groups})
    if kind.rank == 1 and rank == 1:
        return value if value.type == kind else _create(operation, "tensor.cast", kind, [value])
    groups = _all(kind.rank) if rank else ir.ArrayAttr.get([])
    attributes = {"reassociation": groups, "static_output_shape": ir.DenseI64ArrayAttr.get(list(kind.shape))}
    return _create(operation, "tensor.expand_shape", kind, [value, *extents], attributes)


def _all(rank: int) -> ir.ArrayAttr:
    """The reassociation of all dimensions with a single one."""
    kind = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(kind, axis) for axis in range(rank)])])


def _bitcast(operation: ir.Operation) -> list[ir.Value]:
    """A bitcast between elements of the same width and tensors of the same shape."""
    source = operation.operands[0]
    old, kind = _tensor(operation, source), _tensor(operation, operation.results[0])
    if old.shape != kind.shape or _width(old.element_type) != _width(kind.element_type):
        raise CompileError(
            f"{operation.name}: from {old} to {kind}; expected the same extents, and elements of the same width",
            locate(operation.location),
        )
    return [source if kind == old else _create(operation, "arith.bitcast", kind, [source])]


def _width(kind: ir.Type) -> int:
    return kind.width if isinstance(kind, (ir.IntegerType, ir.FloatType)) else 0


def _load(operation: ir.Operation) -> list[ir.Value]:
    return [_create(operation, "tensor.extract", operation.results[0].type, list(operation.operands))]


def _store(operation: ir.Operation) -> list[ir.Value]:
    return [_create(operation, "tensor.insert", operation.results[0].type, list(operation.operands))]


def _slice(operation: ir.Operation) -> list[ir.Value]:
    source, *places = operation.operands
    old, kind = _tensor(operation, source), _tensor(operation, operation.results[0])
    starts, lengths = places[: old.rank], places[old.rank :]
    if len(lengths) != old.rank:
        raise CompileError(
            f"{operation.name}: {len(places)} numbers; expected {old.rank} starts and {old.rank} lengths for {old}",
            locate(operation.location),
        )
    dynamic = ir.RankedTensorType.get([ir.ShapedType.get_dynamic_size()] * old.rank, old.element_type)
    part = _create(operation, "tensor.extract_slice", dynamic, [source, *starts, *lengths], _places(old.rank, True))
    return [part if kind == dynamic else _create(operation, "tensor.cast", kind, [part])]


def _update(operation: ir.Operation) -> list[ir.Value]:
    value, into, *starts = operation.operands
    part, kind = _tensor(operation, value), _tensor(operation, into)
    if len(starts) != kind.rank or part.rank != kind.rank:
        raise CompileError(
            f"{operation.name}: {len(starts)} starts, and a part of rank {part.rank}; {kind} expects {kind.rank}",
            locate(operation.location),
        )
    index = ir.IndexType.get()
    extents: list[ir.Value] = []
    for axis in range(part.rank):
        if part.is_dynamic_dim(axis):
            number = ir.IntegerAttr.get(index, axis)
            axis_value = _create(operation, "arith.constant", index, [], {"value": number})
            extents.append(_create(operation, "tensor.dim", index, [value, axis_value]))
    attributes = _places(kind.rank, False, list(part.shape), len(extents))
    return [_create(operation, "tensor.insert_slice", kind, [value, into, *starts, *extents], attributes)]


def _places(
    rank: int, from_source: bool, sizes: list[int] | None = None, dynamic_sizes: int | None = None
) -> dict[str, ir.Attribute]:
    """The attributes of a slice with unit strides, with dynamic starts, and dynamic sizes if `sizes` are not given."""
    unknown = ir.ShapedType.get_dynamic_size()
    given = [unknown] * rank if sizes is None else sizes
    dynamic = rank if dynamic_sizes is None else dynamic_sizes
    segments = [1, rank, dynamic, 0] if from_source else [1, 1, rank, dynamic, 0]
    return {
        "static_offsets": ir.DenseI64ArrayAttr.get([unknown] * rank),
        "static_sizes": ir.DenseI64ArrayAttr.get(given),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
    }


_RULES: Mapping[str, Callable[[ir.Operation], list[ir.Value]]] = MappingProxyType({
    "flow.tensor.constant": _constant,
    "flow.tensor.dynamic_constant": _constant,
    "util.unfoldable_constant": _constant,
    "flow.tensor.splat": _splat,
    "flow.tensor.empty": _empty,
    "flow.tensor.alloca": _empty,
    "flow.tensor.reshape": _reshape,
    "flow.tensor.bitcast": _bitcast,
    "flow.tensor.clone": _same,
    "flow.tensor.load": _load,
    "flow.tensor.store": _store,
    "flow.tensor.slice": _slice,
    "flow.tensor.update": _update,
    "util.optimization_barrier": _same,
    "hal.tensor.barrier": _same,
    "hal.tensor.transients": _first,  # Motet allocates intermediate values itself
})


# -- arguments and results -----------------------------------------------------------------------


class _Signature:
    """A function whose arguments and results are buffers, with the imports and exports that give their tensor types."""

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        self.blocks = list(function.regions[0].blocks)
        self.aliases: list[tuple[ir.Value, int]] = []  # values and the arguments that they are written into
        self.pins: dict[tuple[str, int], dict[str, ir.Attribute]] = {}  # attributes of arguments and results

    def resolve(self) -> None:
        if not self.blocks or not self._speaks():
            return
        if len(self.blocks) > 1:
            raise CompileError(
                f"{self._what()}: branches between blocks beside {BUFFER_VIEW}; expected one block",
                locate(self.function.location),
            )
        self._exports()
        for index, argument in enumerate(self.blocks[0].arguments):
            if str(argument.type) in _BUFFERS:
                self._import(index, argument)
        dropped = self._drop_fences()
        self._destinations(dropped)
        self._attributes("arg_attrs", "argument", dropped, len(self.blocks[0].arguments))
        self._attributes("res_attrs", "result", [], len(self.returned.operands))
        inputs = [argument.type for argument in self.blocks[0].arguments]
        results = [value.type for value in self.returned.operands]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))

    def _speaks(self) -> bool:
        kind = ir.FunctionType(ir.TypeAttr(self.function.attributes["function_type"]).value)
        return any(str(one) in (*_BUFFERS, _FENCE) for one in (*kind.inputs, *kind.results))

    def _what(self) -> str:
        return f"function @{ir.StringAttr(self.function.attributes['sym_name']).value}"

    @property
    def returned(self) -> ir.Operation:
        operations = self.blocks[0].operations
        return operations[len(operations) - 1].operation

    def _exports(self) -> None:
        """Returns exported values, or writes them into the storage that the export names."""
        last = self.returned
        for index, value in enumerate(list(last.operands)):
            owner = value.owner
            if isinstance(owner, ir.Block) or owner.name != "hal.tensor.export":
                continue
            self._say("result", index, owner)
            last.operands[index] = owner.operands[0]
        for operation in [one.operation for one in self.blocks[0].operations]:
            if operation.name not in ("hal.tensor.export", "hal.tensor.alias"):
                continue
            if len(operation.operands) == 2:
                self.aliases.append((operation.operands[0], self._argument(operation, operation.operands[1])))
            if operation.name == "hal.tensor.alias":
                operation.results[0].replace_all_uses_with(operation.operands[0])
            elif list(operation.results[0].uses):
                raise CompileError(
                    f"{operation.name}: its result is used by an operation; expected it to be returned",
                    locate(operation.location),
                )
            operation.erase()

    def _argument(self, operation: ir.Operation, value: ir.Value) -> int:
        for index, argument in enumerate(self.blocks[0].arguments):
            if argument == value:
                return index
        raise CompileError(
            f"{operation.name}: its storage is no argument of the function; expected one", locate(operation.location)
        )

    def _import(self, index: int, argument: ir.BlockArgument) -> None:
        """Gives an argument the type of its import, or of the value written into it."""
        uses = [use.owner for use in argument.uses]
        imports = [one for one in uses if one.name == "hal.tensor.import"]
        kinds = [one.results[0].type for one in imports]
        kinds += [value.type for value, into in self.aliases if into == index]
        if not kinds:
            if uses:
                raise CompileError(
                    f"{self._what()}: argument {index}: {uses[0].name} reads it; expected hal.tensor.import",
                    locate(uses[0].location),
                )
            # An unused buffer: memory for intermediate values, which Motet allocates itself.
            argument.set_type(ir.Type.parse(_FENCE))
            return
        if any(kind != kinds[0] for kind in kinds):
            raise CompileError(
                f"{self._what()}: argument {index} is imported as {kinds[0]} and as "
                f"{next(kind for kind in kinds if kind != kinds[0])}; expected one type",
                locate(self.function.location),
            )
        argument.set_type(kinds[0])
        for one in imports:
            self._say("argument", index, one)
            one.results[0].replace_all_uses_with(argument)
            one.erase()
        for use in list(argument.uses):
            if use.owner.name == "hal.buffer_view.dim":
                self._dim(use.owner, argument)

    def _dim(self, operation: ir.Operation, argument: ir.Value) -> None:
        index = ir.IndexType.get()
        axis = _create(operation, "arith.constant", index, [], {"value": operation.attributes["index"]})
        made = _create(operation, "tensor.dim", index, [argument, axis])
        operation.results[0].replace_all_uses_with(made)
        operation.erase()

    def _say(self, what: str, index: int, operation: ir.Operation) -> None:
        """Gives an argument or result the device and name of `operation`, an import or export."""
        for key, meant in ((AFFINITY, PIN), ("name", NAME)):
            if key in operation.attributes:
                self._pin(what, index, meant, operation.attributes[key])

    def _pin(self, group: str, index: int, name: str, value: ir.Attribute) -> None:
        self.pins.setdefault((group, index), {}).setdefault(name, value)

    def _drop_fences(self) -> list[int]:
        """Erases fence arguments; returns their indices."""
        block = self.blocks[0]
        dropped = [index for index, argument in enumerate(block.arguments) if str(argument.type) == _FENCE]
        for index in reversed(dropped):
            used = next(iter(block.arguments[index].uses), None)
            if used is not None:
                raise CompileError(
                    f"{used.owner.name}: fences are waited for and signalled by the runtime; expected them as "
                    "arguments of hal.tensor.import, alias and barrier alone", locate(used.owner.location),
                )
            block.erase_argument(index)
        return dropped

    def _destinations(self, dropped: list[int]) -> None:
        """Makes values written into an argument results."""
        if not self.aliases:
            return
        last = self.returned
        operands = list(last.operands)
        for value, into in self.aliases:
            place = into - sum(index < into for index in dropped)
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place)
            self._pin("result", len(operands), DESTINATION, number)
            operands.append(value)
        ir.Operation.create("func.return", operands=operands, loc=last.location, ip=ir.InsertionPoint(last))
        last.erase()

    def _attributes(self, group: str, what: str, dropped: list[int], count: int) -> None:
        """Merges the attributes from imports and exports into those of the function's arguments and results."""
        there = self.function.attributes
        given = [ir.DictAttr(one) for one in ir.ArrayAttr(there[group])] if group in there else []
        given += [ir.DictAttr.get({})] * (count + len(dropped) - len(given))
        kept = [
            ir.DictAttr.get({**self.pins.get((what, index), {}), **{entry.name: entry.attr for entry in one}})
            for index, one in enumerate(given)
            if index not in dropped
        ]
        if any(len(one) for one in kept):
            there[group] = ir.ArrayAttr.get(kept)
        elif group in there:
            del there[group]
