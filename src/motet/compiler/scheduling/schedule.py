"""schedule: turns a public function of kernel calls into buffers, commands and a memory plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from motet.artifact.schema import Buffer, Command, Expr, Parameter, Schedule
from motet.compiler.codegen.cpu.packing import packed_elements
from motet.compiler.codegen.kernel import KernelCode, Packing, item_bytes
from motet.compiler.codegen.reader import dtype_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import DESTINATION, PARAMETER
from motet.compiler.partition.roles import ALIASES
from motet.compiler.scheduling.expressions import apply, product, substitute
from motet.compiler.scheduling.layout import callee
from motet.compiler.scheduling.memory import Life, plan_memory
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError


@dataclass(frozen=True)
class Compiled:
    """A kernel that can be dispatched: its code, which of the call's operands are its buffers (constants with
    their packing), and where its symbols come from: (operand or result, its number, axis)."""

    code: KernelCode
    operands: tuple[int, ...]
    packings: tuple[Packing | None, ...]
    extents: tuple[tuple[str, str, int, int], ...]  # (symbol, "argument" | "result", index, axis)


@dataclass(eq=False)
class Storage:
    """Memory that one or more values of the function are."""

    kind: str  # input, result, parameter, arena
    bytes: Expr
    index: int = 0
    key: str = ""
    shape: tuple[int, ...] = ()
    packing: Packing | None = None
    first: int = -1
    last: int = -1
    extents: tuple[Expr, ...] = ()  # of a tensor in the arena, and
    dtype: str = ""
    writers: list[int] = field(default_factory=list[int])
    readers: list[int] = field(default_factory=list[int])


@dataclass
class ParameterStore:
    """The parameters of an artifact: every (constant, layout) that some schedule uses, once."""

    arrays: Mapping[str, np.ndarray]
    entries: list[Parameter] = field(default_factory=list[Parameter])
    uses: dict[tuple[str, Packing | None, tuple[int, ...]], int] = field(
        default_factory=dict[tuple[str, Packing | None, tuple[int, ...]], int]
    )

    def index(self, key: str, packing: Packing | None, shape: tuple[int, ...]) -> int:
        use = (key, packing, shape if packing else ())
        if use not in self.uses:
            self.uses[use] = len(self.uses)
        return self.uses[use]


def schedule_function(
    function: ir.Operation, shapes: Shapes, kernels: Mapping[str, Compiled], parameters: ParameterStore
) -> Schedule:
    """The schedule of `function`, whose body is calls of `kernels`, sizes and aliases."""
    return _Scheduler(function, shapes, kernels, parameters).run()


class _Scheduler:
    def __init__(
        self, function: ir.Operation, shapes: Shapes, kernels: Mapping[str, Compiled], parameters: ParameterStore
    ) -> None:
        self.function = function
        self.shapes = shapes
        self.kernels = kernels
        self.parameters = parameters
        self.storage: dict[ir.Value, Storage] = {}
        self.commands: list[tuple[Command, list[Storage], int]] = []  # with its buffers, the first written of them
        self.scratch = 0

    def run(self) -> Schedule:
        block = self.function.regions[0].blocks[0]
        self._bind_arguments(block)
        operations = [o.operation for o in block.operations]
        for operation in operations[:-1]:
            if operation.name == "func.call":
                self._bind_results(operation)
            elif operation.name in ALIASES:
                self.storage[operation.results[0]] = self.storage[operation.operands[0]]
        copies = self._place_results(operations[-1])
        for operation in operations[:-1]:
            if operation.name == "func.call":
                self._dispatch(operation)
        for source, target in copies:
            self._record(Command("copy", []), [source, target], 1)
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
        return apply("*", product(self.shapes.of(value)), item_bytes(dtype_of(value.type)))

    def _bind_results(self, call: ir.Operation) -> None:
        for result in call.results:
            self.storage[result] = Storage(
                "arena", self._bytes(result), extents=self.shapes.of(result), dtype=dtype_of(result.type)
            )

    # -- results ---------------------------------------------------------------------------------

    def _place_results(self, terminator: ir.Operation) -> list[tuple[Storage, Storage]]:
        """Let results be computed where the caller wants them; what cannot be is copied there at the end."""
        destinations = self._destinations(len(terminator.operands))
        copies: list[tuple[Storage, Storage]] = []
        for index, operand in enumerate(terminator.operands):
            storage = self.storage[operand]
            if storage.kind == "arena" and not self._is_read(destinations[index]):
                storage.kind, storage.index = "result", index
            else:
                copies.append((storage, Storage("result", storage.bytes, index)))
        return copies

    def _destinations(self, count: int) -> list[int | None]:
        if "res_attrs" not in self.function.attributes:
            return [None] * count
        dictionaries = [ir.DictAttr(a) for a in ir.ArrayAttr(self.function.attributes["res_attrs"])]
        return [ir.IntegerAttr(d[DESTINATION]).value if DESTINATION in d else None for d in dictionaries]

    def _is_read(self, argument: int | None) -> bool:
        """Whether the contents that a destination has on entry are used."""
        if argument is None:
            return False
        value = self.function.regions[0].blocks[0].arguments[argument]
        return any(use.owner.operation.name != "tensor.dim" for use in value.uses)

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
        sizes = [bindings[symbol] for symbol, *_ in compiled.extents]
        self.scratch = max(self.scratch, code.scratch)
        for phase in code.phases:
            command = Command("dispatch", [], phase.symbol, substitute(phase.tasks, bindings), sizes)
            self._record(command, buffers, reads)

    def _operand(self, value: ir.Value, packing: Packing | None) -> Storage:
        storage = self.storage[value]
        if packing is None or storage.kind != "parameter":
            return storage
        shape = tuple(int(str(size)) for size in self.shapes.of(value))
        size = packed_elements(shape, packing) * item_bytes(dtype_of(value.type))
        return Storage("parameter", size, key=storage.key, packing=packing, shape=shape)

    def _record(self, command: Command, buffers: list[Storage], first_written: int) -> None:
        number = len(self.commands)
        for position, storage in enumerate(buffers):
            if storage.first < 0:
                storage.first = number
            storage.last = number
            (storage.writers if position >= first_written else storage.readers).append(number)
        self.commands.append((command, buffers, first_written))

    # -- the finished schedule -------------------------------------------------------------------

    def _finish(self) -> Schedule:
        storages = list(dict.fromkeys(s for _, buffers, _ in self.commands for s in buffers))
        arena = [s for s in storages if s.kind == "arena"]
        plan = plan_memory([Life(s.bytes, s.first, s.last) for s in arena])
        offset = dict(zip(arena, plan.offsets, strict=True))
        numbers: dict[Storage, int] = {}
        table: dict[tuple[str, int, str, str], int] = {}
        buffers: list[Buffer] = []
        for storage in storages:
            buffer = self._buffer(storage, offset.get(storage, 0))
            key = (buffer.kind, buffer.index, str(buffer.offset), str(buffer.bytes))
            if buffer.kind == "arena" or key not in table:
                table[key] = len(buffers)
                buffers.append(buffer)
            numbers[storage] = table[key]
        after = self._dependences(storages, offset)
        commands = [
            Command(c.op, [numbers[s] for s in used], c.kernel, c.tasks, c.sizes, after[i])
            for i, (c, used, _) in enumerate(self.commands)
        ]
        return Schedule(buffers, commands, plan.total, self.scratch)

    def _buffer(self, storage: Storage, offset: Expr) -> Buffer:
        if storage.kind == "parameter":
            index = self.parameters.index(storage.key, storage.packing, storage.shape)
            return Buffer("parameter", storage.bytes, index)
        if storage.kind == "arena":
            return Buffer("arena", storage.bytes, 0, offset, list(storage.extents), storage.dtype)
        return Buffer("input" if storage.kind == "input" else "result", storage.bytes, storage.index)

    def _dependences(self, storages: Sequence[Storage], offset: Mapping[Storage, Expr]) -> list[list[int]]:
        after: list[set[int]] = [set() for _ in self.commands]
        for storage in storages:
            accesses = sorted({*storage.writers, *storage.readers})
            written = set(storage.writers)
            for position, later in enumerate(accesses):
                for earlier in accesses[:position]:
                    if later in written or earlier in written:
                        after[later].add(earlier)
        arena = sorted(offset, key=lambda s: s.first)
        for position, later in enumerate(arena):
            for earlier in arena[:position]:
                if earlier.last < later.first and _share(earlier, offset[earlier], later, offset[later]):
                    after[later.first].update(earlier.readers, earlier.writers)
        return [sorted(earlier) for earlier in after]


def _share(a: Storage, a_offset: Expr, b: Storage, b_offset: Expr) -> bool:
    sizes = (a.bytes, a_offset, b.bytes, b_offset)
    if all(isinstance(size, int) for size in sizes):
        a_bytes, a_start, b_bytes, b_start = (int(str(size)) for size in sizes)
        return a_start < b_start + b_bytes and b_start < a_start + a_bytes
    return a_offset == b_offset


def argument_attributes(function: ir.Operation, count: int) -> list[ir.DictAttr | None]:
    """The attributes of every argument of a function."""
    if "arg_attrs" not in function.attributes:
        return [None] * count
    found = [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
    if len(found) != count:
        raise CompileError(f"{count} arguments but attributes for {len(found)}")
    return [*found]
