"""schedule: converts a public function of kernel calls to buffers, commands and a memory plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from motet.artifact.expressions import apply, product, substitute
from motet.artifact.schema import STATUS_BYTES, Command, Expr, Schedule
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, PARAMETER
from motet.compiler.ir.source_names import names_of_call
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.kernel import ITEM_BITS, Packing, Size, item_bytes
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.layout import callee
from motet.compiler.kernels.packing import packed_elements
from motet.compiler.kernels.reader.reading import Unreadable, dtype_of, element_bytes
from motet.compiler.kernels.roles import ALIASES
from motet.compiler.scheduling.arrangement import ArrangeOptions, Recorded, Storage, arrange
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError

DEFAULTS = ArrangeOptions()
RENAMING = "renaming"  # the kind of kernels without phases, whose results are their arguments under another name
# Operations and bytes per second of one thread of a processor, to compare commands with each other.
_FLOPS, _BANDWIDTH = 5e10, 1e10


@dataclass(frozen=True)
class Compiled:
    """A kernel that can be dispatched: its code, the operands of the call that are its buffers (constants with their
    packing), and the sources of its symbols: (operand or result, its number, axis). `shapes` are those of its operands
    and results over its symbols, `items` the bytes of their elements."""

    code: KernelCode
    operands: tuple[int, ...]
    packings: tuple[Packing | None, ...]
    extents: tuple[tuple[str, str, int, int], ...]  # (symbol, "argument" | "result", index, axis)
    shapes: tuple[tuple[Size, ...], ...]
    items: tuple[int, ...]


@dataclass
class ParameterStore:
    """The parameters of an artifact: every (constant, layout) that some schedule uses, once."""

    arrays: Mapping[str, np.ndarray]
    uses: dict[tuple[str, Packing | None, tuple[int, ...]], int] = field(
        default_factory=dict[tuple[str, Packing | None, tuple[int, ...]], int]
    )

    def index(self, key: str, packing: Packing | None, shape: tuple[int, ...]) -> int:
        use = (key, packing, shape if packing else ())
        if use not in self.uses:
            self.uses[use] = len(self.uses)
        return self.uses[use]


def schedule_function(
    function: ir.Operation, shapes: Shapes, kernels: Mapping[str, Compiled], parameters: ParameterStore,
    options: ArrangeOptions = DEFAULTS,
) -> Schedule:
    """The schedule of `function`, whose body is calls of `kernels`, sizes and aliases.

    Raises: CompileError: its arena cannot meet the limit in `options`.
    """
    return _Scheduler(function, shapes, kernels, parameters, options).run()


class _Scheduler:
    def __init__(
        self, function: ir.Operation, shapes: Shapes, kernels: Mapping[str, Compiled], parameters: ParameterStore,
        options: ArrangeOptions,
    ) -> None:
        self.options = options
        self.function = function
        self.shapes = shapes
        self.kernels = kernels
        self.parameters = parameters
        self.storage: dict[ir.Value, Storage] = {}
        self.recorded: list[Recorded] = []
        self.scratch = 0

    def run(self) -> Schedule:
        block = self.function.regions[0].blocks[0]
        self._bind_arguments(block)
        operations = [o.operation for o in block.operations]
        for operation in operations[:-1]:
            if operation.name in ALIASES or self._renames(operation):
                self.storage[operation.results[0]] = self.storage[operation.operands[0]]
            elif operation.name == "func.call":
                self._bind_results(operation)
        copies = self._place_results(operations[-1])
        for operation in operations[:-1]:
            if operation.name == "func.call":
                self._dispatch(operation)
        for source, target in copies:
            self.recorded.append(Recorded(Command("copy", []), [source, target], 1))
        return self._finish()

    def _bind_arguments(self, block: ir.Block) -> None:
        attributes = argument_attributes(self.function, len(block.arguments))
        inputs = 0
        for argument, attribute in zip(block.arguments, attributes, strict=True):
            size = self._bytes(argument)
            if attribute is not None and PARAMETER in attribute:
                key = ir.StringAttr(attribute[PARAMETER]).value
                self.storage[argument] = Storage("parameter", size, key=key)
            else:
                self.storage[argument] = Storage("input", size, inputs)
                inputs += 1

    def _bytes(self, value: ir.Value) -> Expr:
        return apply("*", product(self.shapes.of(value)), _stored_as(value)[1])

    def _renames(self, operation: ir.Operation) -> bool:
        return operation.name == "func.call" and self.kernels[callee(operation)].code.kind == RENAMING

    def _bind_results(self, call: ir.Operation) -> None:
        for result in call.results:
            self.storage[result] = Storage(
                "arena", self._bytes(result), extents=self.shapes.of(result), dtype=_stored_as(result)[0]
            )

    # -- results ---------------------------------------------------------------------------------

    def _place_results(self, terminator: ir.Operation) -> list[tuple[Storage, Storage]]:
        """Lets results be computed in the caller's memory; results for which that is impossible are copied at the
        end."""
        destinations = self._destinations(len(terminator.operands))
        arguments = self.function.regions[0].blocks[0].arguments
        over = [None if target is None else self.storage[arguments[target]] for target in destinations]
        saved: dict[Storage, Storage] = {}
        copies: list[tuple[Storage, Storage]] = []
        for index, operand in enumerate(terminator.operands):
            storage = self.storage[operand]
            if storage is over[index]:  # the caller's buffer keeps its value
                continue
            if storage.kind == "arena" and not self._is_read(destinations[index], operand):
                storage.kind, storage.index, storage.over = "result", index, over[index]
                continue
            if storage in over:  # another result may be written over it first
                storage = saved.setdefault(storage, Storage("arena", storage.bytes))
            copies.append((storage, Storage("result", storage.bytes, index, over=over[index])))
        return [*saved.items(), *copies]

    def _destinations(self, count: int) -> list[int | None]:
        if "res_attrs" not in self.function.attributes:
            return [None] * count
        dictionaries = [ir.DictAttr(a) for a in ir.ArrayAttr(self.function.attributes["res_attrs"])]
        return [ir.IntegerAttr(d[DESTINATION]).value if DESTINATION in d else None for d in dictionaries]

    def _is_read(self, argument: int | None, result: ir.Value) -> bool:
        """Whether the initial contents of a destination are used other than by the kernel that computes `result` from
        them and may do so in place."""
        if argument is None:
            return False
        value = self.function.regions[0].blocks[0].arguments[argument]
        uses = [use for use in value.uses if use.owner.operation.name != "tensor.dim"]
        if len(uses) != 1 or isinstance(result.owner, ir.Block):
            return bool(uses)
        call = result.owner.operation
        if uses[0].owner.operation != call or call.name != "func.call":
            return True
        compiled = self.kernels[callee(call)]
        if uses[0].operand_number not in compiled.operands:
            return True
        number = next(i for i, other in enumerate(call.results) if other == result)
        pair = (compiled.operands.index(uses[0].operand_number), len(compiled.operands) + number)
        return pair not in compiled.code.updates

    # -- commands --------------------------------------------------------------------------------

    def _dispatch(self, call: ir.Operation) -> None:
        compiled = self.kernels[callee(call)]
        code = compiled.code
        bindings = {
            symbol: self.shapes.of((call.operands if which == "argument" else call.results)[index])[axis]
            for symbol, which, index, axis in compiled.extents
        }
        buffers = [
            self._operand(call.operands[operand], packing)
            for operand, packing in zip(compiled.operands, compiled.packings, strict=True)
        ]
        reads = len(buffers)
        buffers += [self.storage[result] for result in call.results]
        buffers += [Storage("arena", substitute(size, bindings)) for size in code.workspaces]
        if code.checks:
            buffers.append(Storage("status", STATUS_BYTES, checks=code.checks))
        sizes = [bindings[symbol] for symbol, *_ in compiled.extents]
        self.scratch = max(self.scratch, code.scratch)
        source, seconds = names_of_call(call), _seconds(code, buffers)
        for phase in code.phases:
            command = Command("dispatch", [], phase.symbol, substitute(phase.tasks, bindings), sizes, source=source)
            taken = range(len(buffers)) if phase.buffers is None else phase.buffers
            place = {number: position for position, number in enumerate(taken)}
            updates = tuple((place[a], place[b]) for a, b in code.updates if a in place and b in place)
            self.recorded.append(Recorded(
                command, [buffers[number] for number in taken], sum(number < reads for number in taken),
                seconds, updates,
            ))

    def _operand(self, value: ir.Value, packing: Packing | None) -> Storage:
        storage = self.storage[value]
        if packing is None or storage.kind != "parameter":
            return storage
        shape = tuple(int(str(size)) for size in self.shapes.of(value))
        size = packed_elements(shape, packing) * item_bytes(dtype_of(value.type))
        return Storage("parameter", size, key=storage.key, packing=packing, shape=shape)

    def _finish(self) -> Schedule:
        parameters = {
            storage: self.parameters.index(storage.key, storage.packing, storage.shape)
            for entry in self.recorded
            for storage in entry.storages
            if storage.kind == "parameter"
        }
        try:
            return arrange(self.recorded, parameters, self.scratch, self.options)
        except CompileError as error:
            name = symbol_name(self.function)
            raise CompileError(f"function {name!r}: {error.message}") from None


def _seconds(code: KernelCode, storages: Sequence[Storage]) -> float:
    """A rough estimate of the duration of a kernel's phase on one thread; 0 if it depends on symbols."""
    sizes = [storage.bytes for storage in storages]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        return 0.0
    return max(code.flops / _FLOPS, sum(known) / _BANDWIDTH) / max(1, len(code.phases))


def argument_attributes(function: ir.Operation, count: int) -> list[ir.DictAttr | None]:
    """The attributes of every argument of a function."""
    if "arg_attrs" not in function.attributes:
        return [None] * count
    found = [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
    if len(found) != count:
        raise CompileError(f"{count} arguments but attributes for {len(found)}")
    return [*found]


def _stored_as(value: ir.Value) -> tuple[str, int]:
    """The element type of a tensor between kernels, and its bytes. Raises CompileError for types without memory."""
    element = ir.RankedTensorType(value.type).element_type
    try:
        return str(element), element_bytes(value.type)
    except Unreadable:
        raise CompileError(
            f"a tensor of {element} between kernels is not supported; expected complex numbers, or one of "
            + ", ".join(ITEM_BITS),
            None if isinstance(value.owner, ir.Block) else source_location(value.owner),
        ) from None
