"""read-value-extents: makes extents that depend on values extents of added inputs, computed by an added function.

    func @main(%x: tensor<4x6xf32>,                  func @main(%x, %r, %v: tensor<?x0xi8> {motet.value = …}) {
               %r: tensor<1xi64>) {                    %n = tensor.dim %v, 0
      %0 = tensor.extract %r[0]               →        … = tensor.empty(%n)
      %n = arith.index_cast %0                       }
      … = tensor.empty(%n)                           func @main.values(%x, %r) -> tensor<1xi64> {
    }                                                  … tensor.from_elements of %0
                                                     }

A call runs `main.values` first; its first result has the extents of the added inputs, which have no elements. Later
stages thus see only dynamic extents of inputs. Tensors that `main.values` computes on the way and `main` reads, such as
what a loop, a sort or a product makes, are further results and further inputs, so that none is computed twice. Values
computed from tensors whose own extents depend on values are returned by a second function, `main.values1`, whose inputs
include those added before.

Offsets and padding of the same operation become extents too; the runtime checks that none of them is negative.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from motet.compiler.ir._mlir import func, ir, run_pipeline
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import DIMS, NAME, ONE_KERNEL, PARAMETER, VALUE
from motet.compiler.ir.remap import remap
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.ir.source_names import source_name
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.passes.base import ModulePass
from motet.compiler.scheduling.shapes import Shapes

_MAKERS = frozenset({
    "tensor.empty", "tensor.splat", "tensor.generate", "tensor.pad", "tensor.extract_slice", "tensor.expand_shape",
    "tensor.reshape",
})  # fmt: skip
_PLAIN = ("affine.", "arith.", "linalg.", "math.", "tensor.")  # the operations of upstream's loops
_FEW = 256  # elements
_MOVES = ("linalg.fill", "linalg.broadcast", "linalg.transpose", "linalg.map", "linalg.copy", "linalg.index")
_CHEAP = ("arith.", "tensor.extract", "tensor.extract_slice", "tensor.dim", "tensor.from_elements", "affine.apply")


@dataclass(frozen=True)
class ReadValueExtents(ModulePass):
    """Rewrites every public function of one block that has extents which depend on values."""

    name = "read-value-extents"

    def run(self, module: ir.Module) -> None:
        functions = [each for each in public_functions(module) if len(list(each.regions[0].blocks)) == 1]
        if not any(_Function(module, function).unknown() for function in functions):
            return
        folds = not uses_devices(module)  # canonicalisation forgets attributes, such as where an operation runs
        if folds:
            run_pipeline(module, "canonicalize,cse")  # what follows from constants needs no function
        changed = [_Function(module, function).run() for function in functions]
        if folds and any(changed):
            run_pipeline(module, "canonicalize,cse")
        for function in functions:
            erase_unused(function)


@dataclass
class _Phase:
    """The values that one function returns, each with the first operation that asked for it. The `small` ones are
    computed from few elements: their function is one kernel."""

    small: bool
    values: list[ir.Value] = field(default_factory=list[ir.Value])
    users: list[ir.Operation] = field(default_factory=list[ir.Operation])
    carried: list[ir.Value] = field(default_factory=list[ir.Value])  # tensors that the function also returns


class _Function:
    def __init__(self, module: ir.Module, function: ir.Operation) -> None:
        self.module = module
        self.function = function
        self.name = symbol_name(function)
        self.block = function.regions[0].blocks[0]
        self.phases: list[_Phase] = []
        self.added: dict[ir.Value, int] = {}  # added arguments → the phases that compute their extents
        self.extents: dict[ir.Value, ir.Value] = {}  # value → the extent that replaces it
        self.arguments: dict[tuple[int, int], ir.Value] = {}  # by phase and number in it

    def run(self) -> bool:
        """Rewrites the function; returns whether it changed."""
        for _ in range(len(list(self.block.operations))):
            found = self.unknown()
            if not found:
                break
            for operation, operands in found:
                for number in operands:
                    self._replace(operation, number)
        if not self.phases:
            return False
        functions = [self._compute(number) for number in range(len(self.phases))]
        for value, extent in self.extents.items():  # in all other readers
            value.replace_all_uses_with(extent)
        self._rebuild(functions)
        return True

    # -- the values

    def unknown(self) -> list[tuple[ir.Operation, list[int]]]:
        """Operations that make the first tensors whose extents are not known, and the operands that say them."""
        shapes, found = Shapes(self.function), list[tuple[ir.Operation, list[int]]]()
        for entry in self.block.operations:
            operation = entry.operation
            shapes.note(operation)
            if operation.name not in _MAKERS or operation.results[0] in shapes.tensors:
                continue
            if any(_is_data(operand) and operand not in shapes.tensors for operand in operation.operands):
                continue
            asked = operation
            if operation.name == "tensor.reshape":
                asked = _elements(operation)
            first = 1 if asked.name == "tensor.splat" else 0  # operand 0 of a splat is its element
            operands = [
                number for number, operand in enumerate(asked.operands)
                if number >= first and not isinstance(operand.type, ir.RankedTensorType)
                and shapes.numbers.get(operand) is None and _reads_arguments(operand)
            ]
            if operands:
                found.append((asked, operands))
        return found

    def _replace(self, operation: ir.Operation, number: int) -> None:
        """Replaces operand `number` by an extent of an added input."""
        value = operation.operands[number]
        if value not in self.extents:
            place = self._phase(value)
            phase = self.phases[place]
            phase.values.append(value)
            phase.users.append(operation)
            kind = ir.RankedTensorType.get(
                [ir.ShapedType.get_dynamic_size(), 0], ir.IntegerType.get_signless(8), loc=operation.location
            )
            argument = self._add(kind, place, len(phase.values) - 1)
            with ir.InsertionPoint.at_block_begin(self.block), operation.location:
                extent = extent_of(argument, 0)
                if not isinstance(value.type, ir.IndexType):
                    extent = ir.Operation.create("arith.index_cast", results=[value.type], operands=[extent]).result
            self.extents[value] = extent
        operation.operands[number] = self.extents[value]

    def _add(self, kind: ir.Type, phase: int, number: int) -> ir.Value:
        """Appends an argument; `_rebuild` orders the arguments."""
        before = self._attributes()
        argument = self.block.add_argument(kind, self.function.location)
        self.added[argument] = phase
        self.arguments[phase, number] = argument
        name = ir.StringAttr.get(f"value{phase}_{number}", self.function.context)
        with self.function.context:
            dims = [""] * ir.RankedTensorType(kind).rank if _is_static_type(kind) else [name.value, ""]
            named = ir.DictAttr.get({NAME: name, DIMS: ir.ArrayAttr.get([ir.StringAttr.get(each) for each in dims])})
            self._set_arguments([*before, named])
        return argument

    def _set_arguments(self, attributes: Sequence[ir.Attribute]) -> None:
        results = ir.FunctionType(ir.TypeAttr(self.function.attributes["function_type"]).value).results
        kinds = [argument.type for argument in self.block.arguments]
        self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, results))
        self.function.attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes))

    def _phase(self, value: ir.Value) -> int:
        order = _slice([value])
        behind = [self.added[argument] for argument in _arguments(order, [value]) if argument in self.added]
        small = all(_is_small(each) and each.name.startswith(_PLAIN) for each in order)
        for number in range(1 + max(behind, default=-1), len(self.phases)):
            if self.phases[number].small == small:
                return number
        self.phases.append(_Phase(small))
        return len(self.phases) - 1

    # -- functions of values

    def _inputs(self, phase: int) -> list[ir.Value]:
        """The inputs of the function of `phase`: the caller's, then those added before."""
        own = [
            argument for argument, attributes in zip(self.block.arguments, self._attributes(), strict=True)
            if PARAMETER not in attributes and argument not in self.added
        ]
        before = [self.arguments[place] for place in sorted(self.arguments) if place[0] < phase]
        return own + before

    def _parameters(self) -> list[ir.Value]:
        return [
            argument for argument, attributes in zip(self.block.arguments, self._attributes(), strict=True)
            if PARAMETER in attributes
        ]

    def _attributes(self) -> list[ir.DictAttr]:
        if "arg_attrs" not in self.function.attributes:
            return [ir.DictAttr.get({}, self.function.context)] * len(self.block.arguments)
        return [ir.DictAttr(each) for each in ir.ArrayAttr(self.function.attributes["arg_attrs"])]

    def _compute(self, number: int) -> str:
        """Adds a public function that returns the values of a phase as one tensor; returns its name."""
        phase = self.phases[number]
        taken = self._assertions(phase, number)
        copied = [*taken, *self._about_extents(phase)]
        order = self._ordered(_slice([*phase.values, *(each.operands[0] for each in copied)]), copied)
        if not phase.small and not uses_devices(self.module):
            phase.carried = self._shared(order)
        inputs = self._inputs(number)
        used = set(_arguments(order, phase.values))
        parameters = [argument for argument in self._parameters() if argument in used]
        known = dict(zip(self.block.arguments, self._attributes(), strict=True))
        name = f"{self.name}.values{number or ''}"
        word = ir.IntegerType.get_signless(64)
        kind = ir.RankedTensorType.get([len(phase.values)], word, loc=self.function.location)
        with self.function.location:
            made = func.FuncOp(
                name, ir.FunctionType.get(
                    [each.type for each in (*inputs, *parameters)], [kind, *(each.type for each in phase.carried)]
                ),
                ip=ir.InsertionPoint(self.module.body),
            )
            block = made.add_entry_block()
        made.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([known[each] for each in (*inputs, *parameters)])
        if phase.small:
            made.operation.attributes[ONE_KERNEL] = ir.UnitAttr.get()
        mapping = dict(zip((*inputs, *parameters), block.arguments, strict=True))
        with ir.InsertionPoint(block), self.function.location:
            for operation in order:
                copy = operation.clone()
                remap(copy, mapping)
                mapping.update(zip(operation.results, copy.results, strict=True))
            words = [_as_word(mapping[value], word) for value in phase.values]
            elements = ir.Operation.create("tensor.from_elements", results=[kind], operands=words)
            func.ReturnOp([elements.result, *(mapping[value] for value in phase.carried)])
        for assertion in taken:
            assertion.erase()
        self._carry(number)
        return name

    def _shared(self, order: Sequence[ir.Operation]) -> list[ir.Value]:
        """The tensors that the operations `order`, a function of values, compute by much work and others read."""
        own, heavy = set(order), set[ir.Operation]()
        found: list[ir.Value] = []
        for operation in order:
            behind = [value.owner for value in captured_values(operation) if not isinstance(value.owner, ir.Block)]
            if _is_work(operation) or any(each.operation in heavy for each in behind):
                heavy.add(operation)
                found += [result for result in operation.results if _is_static(result) and self._is_read(result, own)]
        return found

    def _is_read(self, value: ir.Value, own: set[ir.Operation]) -> bool:
        """Whether operations of the function outside of `own` read `value`."""
        for use in value.uses:
            user = use.owner.operation if hasattr(use.owner, "operation") else use.owner
            while user.block != self.block:
                user = user.parent.operation
            if user not in own and user.name != "tensor.dim":
                return True
        return False

    def _carry(self, number: int) -> None:
        """Replaces the tensors that the function of phase `number` returns by arguments."""
        phase = self.phases[number]
        for place, value in enumerate(phase.carried, len(phase.values)):
            value.replace_all_uses_with(self._add(value.type, number, place))

    def _assertions(self, phase: _Phase, number: int) -> list[ir.Operation]:
        """The assertions about values that `phase` computes anyway, or that follow from these by arithmetic."""
        computed = set(_slice(phase.values))
        shapes = Shapes(self.function)
        found: list[ir.Operation] = []
        for entry in self.block.operations:
            operation = entry.operation
            shapes.note(operation)
            if operation.name != "cf.assert" or shapes.numbers.get(operation.operands[0]) is not None:
                continue
            order = _slice([operation.operands[0]])
            cheap = all(
                each in computed or each.name.startswith(_CHEAP) or (each.name.startswith(_PLAIN) and _is_small(each))
                for each in order
            )
            behind = [self.added[each] for each in _arguments(order, []) if each in self.added]
            reads = any(each.name == "tensor.extract" for each in order)
            if cheap and reads and max(behind, default=-1) < number:
                found.append(operation)
        return found

    def _about_extents(self, phase: _Phase) -> Iterator[ir.Operation]:
        """The assertions about extents of inputs that a phase reads: its function checks them before its own needs."""
        read = set(_arguments(_slice(phase.values), phase.values))
        for entry in self.block.operations:
            if entry.operation.name == "cf.assert":
                order = _slice([entry.operation.operands[0]])
                about = set(_arguments(order, []))
                if about and about <= read and all(each.name.startswith(("arith.", "tensor.dim")) for each in order):
                    yield entry.operation

    def _ordered(self, operations: list[ir.Operation], more: list[ir.Operation]) -> list[ir.Operation]:
        wanted = {*operations, *more}
        return [entry.operation for entry in self.block.operations if entry.operation in wanted]

    # -- the function itself

    def _place(self, argument: ir.Value) -> tuple[int, int]:
        """The phase of an added argument, and its number in it."""
        return next(place for place, each in self.arguments.items() if each == argument)

    def _rebuild(self, functions: list[str]) -> None:
        """Rebuilds the function with its arguments in order: the caller's, the added ones, parameters."""
        known = dict(zip(self.block.arguments, self._attributes(), strict=True))
        order = [*self._inputs(len(self.phases)), *self._parameters()]
        attributes: list[ir.Attribute] = []
        word = ir.IntegerType.get_signless(64)
        for argument in order:
            own = known[argument]
            if argument in self.added:
                phase, number = self._place(argument)
                values = len(self.phases[phase].values)
                result = max(0, number - values + 1)
                user = self.phases[phase].users[0 if result else number]
                said = ir.StringAttr.get(source_name(user))
                numbers = [ir.IntegerAttr.get(word, each) for each in (0 if result else number, result)]
                place = [ir.StringAttr.get(functions[phase]), numbers[0], said, numbers[1]]
                own = ir.DictAttr.get({each.name: each.attr for each in own} | {VALUE: ir.ArrayAttr.get(place)})
            attributes.append(own)
        for argument in order:
            argument.replace_all_uses_with(self.block.add_argument(argument.type, argument.location))
        for _ in order:
            self.block.erase_argument(0)
        self._set_arguments(attributes)


def _is_work(operation: ir.Operation) -> bool:
    """Whether an operation takes more time than reading its result: a loop, a sort, a scan, a product, a sum."""
    if operation.name == "linalg.generic":
        return "reduction" in str(operation.attributes["iterator_types"])
    return operation.name.startswith(("scf.", "tm_tensor.", "linalg.")) and operation.name not in _MOVES


def _is_static(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and _is_static_type(value.type)


def _is_static_type(kind: ir.Type) -> bool:
    return ir.RankedTensorType(kind).has_static_shape


def _is_small(operation: ir.Operation) -> bool:
    """Whether an operation makes few elements, as arithmetic on axes and shapes does."""
    tensors = [ir.RankedTensorType(result.type) for result in operation.results if _is_data(result)]
    return all(kind.has_static_shape and math.prod(kind.shape) <= _FEW for kind in tensors)


def _is_data(value: ir.Value) -> bool:
    """Whether a value is a tensor whose elements an operation reads; a shape is made of scalars."""
    return isinstance(value.type, ir.RankedTensorType)


def _elements(reshape: ir.Operation) -> ir.Operation:
    """The operation that assembles the shape operand of a reshape; created if there is none."""
    shape = reshape.operands[1]
    if not isinstance(shape.owner, ir.Block) and shape.owner.name == "tensor.from_elements":
        return shape.owner.operation
    kind = ir.RankedTensorType(shape.type)
    with ir.InsertionPoint(reshape), reshape.location:
        elements = [
            ir.Operation.create("tensor.extract", results=[kind.element_type], operands=[shape, constant_index(axis)])
            for axis in range(kind.shape[0])
        ]
        made = ir.Operation.create("tensor.from_elements", results=[kind], operands=[each.result for each in elements])
    reshape.operands[1] = made.result
    return made


def _slice(values: Iterable[ir.Value]) -> list[ir.Operation]:
    """The operations that `values` are computed from."""
    found: list[ir.Operation] = []
    seen: set[ir.Operation] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value.owner, ir.Block) or value.owner.operation in seen:
            continue
        operation = value.owner.operation
        seen.add(operation)
        found.append(operation)
        stack += captured_values(operation)
    return found


def _reads_arguments(value: ir.Value) -> bool:
    """Whether it depends on arguments of the function, or on a loop or branch; other values are constants, which fold
    in the end."""
    order = _slice([value])
    stays = any(operation.name.startswith("scf.") for operation in order)
    return isinstance(value.owner, ir.Block) or stays or any(_arguments(order, ()))


def _arguments(operations: Iterable[ir.Operation], values: Iterable[ir.Value]) -> Iterator[ir.Value]:
    """The arguments of the function among `values` and the operands of `operations`."""
    for value in itertools.chain(values, *map(captured_values, operations)):
        if isinstance(value.owner, ir.Block):
            yield value


def _as_word(value: ir.Value, word: ir.Type) -> ir.Value:
    if value.type == word:
        return value
    index = isinstance(value.type, ir.IndexType)
    name = "arith.index_cast" if index else "arith.extsi"
    return ir.Operation.create(name, results=[word], operands=[value]).result
