"""Replaces the kernels in the bodies of loops by calls of their code.

    %n = linalg.generic … ins(%h, %w)      →      %m = memref.alloc()
                                                  func.call @k.body0.call(address of %h, of packed %w, of %m, …)
                                                  %n = bufferization.to_tensor %m

The call is made before bufferization, with the addresses of dense memory as numbers. A loop's carried tensors are
updated in place, so that an iteration allocates nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.recurrence.bodies import BodyKernel, Generate, body_kernels, loop_blocks
from motet.compiler.ir._mlir import arith, func, ir
from motet.compiler.ir.sizes import is_extent
from motet.compiler.kernels.kernel import Packing, Size, item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.packing import packed_elements
from motet.compiler.scheduling.carried import written_into

_ALIGNMENT = 64
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")
_ARITHMETIC = {
    "+": "arith.addi", "-": "arith.subi", "*": "arith.muli", "//": "arith.divui", "ceildiv": "arith.ceildivui",
    "max": "arith.maxsi", "min": "arith.minsi",
}


@dataclass
class LoopCalls:
    """What the calls in a function need: the LLVM IR of `parts`, linked to that of the function; for each argument of
    the function the number that it had before, and its packing."""

    parts: list[str] = field(default_factory=list[str])
    operands: list[int] = field(default_factory=list[int])
    packings: list[Packing | None] = field(default_factory=list["Packing | None"])


def call_kernels(module: ir.Module, function: ir.Operation, symbol: str, generate: Generate) -> LoopCalls:
    """Replaces the kernels in the loops of `function`, a function on tensors of `module`, by calls, in place.

    Constants that kernels read packed become arguments of `function` after the others; constants without other readers
    are no longer arguments."""
    count = len(function.regions[0].blocks[0].arguments)
    caller = _Caller(module, function, LoopCalls([], list(range(count)), [None] * count))
    names = (f"{symbol}.body{number}" for number in itertools.count())
    for block in loop_blocks(function):
        kernels = body_kernels(module, function, block, generate, names)
        for kernel in kernels:
            caller.replace(kernel)
        if kernels:
            caller.erase(kernels)
            _sort(block)
            caller.carry(block)
    if caller.calls.parts:
        caller.finish(count)
    return caller.calls


class _Caller:
    def __init__(self, module: ir.Module, function: ir.Operation, calls: LoopCalls) -> None:
        self.module, self.function, self.calls = module, function, calls
        self.block = function.regions[0].blocks[0]
        self.dense: set[ir.Value] = set(self.block.arguments)
        self.made: set[ir.Value] = set()  # results of calls
        self.packed: dict[tuple[ir.Value, str], ir.Value] = {}
        self.replaced: dict[ir.Value, ir.Value] = {}  # results of kernels, until their operations are erased
        self.i64 = ir.IntegerType.get_signless(64)

    # -- one kernel ------------------------------------------------------------------------------

    def replace(self, found: BodyKernel) -> None:
        kernel, code = found.kernel, found.code
        with ir.InsertionPoint(found.operations[-1]), found.operations[-1].location:
            read: list[ir.Value] = []
            for position, argument in enumerate(kernel.arguments):
                packing = code.packings.get(position)
                value = self._argument(found, argument)
                if packing is not None:
                    value = self._packed(value, packing)
                read.append(self._address(self._memory_of(value), item_bytes(kernel.values[position].dtype)))
            shapes = [kernel.values[number].shape for number in kernel.externals[len(read) :]]
            memory = [
                self._allocated(value.type, [self._size(found, size) for size in shape if isinstance(size, str)])
                for value, shape in zip(found.results, shapes, strict=True)
            ]
            written = [self._address(each, 0) for each in memory]
            work = [self._address(self._workspace(int(str(size))), 0) for size in code.workspaces]
            scratch = self._address(self._workspace(max(1, code.scratch)), 0)
            sizes = [self._word(self._size(found, symbol)) for symbol in kernel.symbols]
            tasks = [self._word(self._value(found, phase.tasks)) for phase in code.phases]
            operands = [*read, *written, *work, *sizes, *tasks, scratch]
            name = self._declare(kernel.name, len(operands))
            func.CallOp([], name, operands)
            flags = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
            for value, each in zip(found.results, memory, strict=True):
                made = ir.Operation.create(
                    "bufferization.to_tensor", results=[value.type], operands=[each], attributes=flags
                ).result
                value.replace_all_uses_with(made)
                self.dense.add(made)
                self.made.add(made)
                self.replaced[value] = made
        buffers = len(read) + len(memory) + len(work)
        self.calls.parts.append(f"{code.llvm}\n{_wrapper(name, code.phases, buffers, len(sizes))}")

    def _argument(self, found: BodyKernel, number: int) -> ir.Value:
        value = found.arguments[number]
        return self.replaced.get(value, value)

    def erase(self, kernels: Sequence[BodyKernel]) -> None:
        """Erases the operations of `kernels`, which calls have replaced."""
        self.replaced.clear()
        left = [operation for kernel in kernels for operation in kernel.operations]
        while left:
            unread = [each for each in left if not any(True for result in each.results for _ in result.uses)]
            left = [each for each in left if each not in unread]
            for operation in unread:
                operation.erase()

    def _declare(self, name: str, operands: int) -> str:
        called = f"{name}.call"
        kind = ir.FunctionType.get([self.i64] * operands, [])
        func.FuncOp(called, kind, visibility="private", ip=ir.InsertionPoint(self.module.body))
        return called

    def _packed(self, constant: ir.Value, packing: Packing) -> ir.Value:
        """The argument that has `constant` packed."""
        key = constant, repr(packing)
        if key not in self.packed:
            kind = ir.RankedTensorType(constant.type)
            elements = packed_elements(tuple(kind.shape), packing)
            made = self.block.add_argument(
                ir.RankedTensorType.get([elements], kind.element_type), self.function.location
            )
            self.calls.operands.append(list(self.block.arguments).index(constant))
            self.calls.packings.append(packing)
            self.packed[key] = made
            self.dense.add(made)
        return self.packed[key]

    # -- memory ----------------------------------------------------------------------------------

    def _memory_of(self, value: ir.Value) -> ir.Value:
        """The memory of a tensor, dense and row-major; a copy if it may be a part of larger rows."""
        kind = ir.RankedTensorType(value.type)
        if not self._is_dense(value):
            value = _copied(value)
        unknown = ir.ShapedType.get_dynamic_size()
        strides = [1]
        for axis in range(kind.rank - 1, 0, -1):
            known = not kind.is_dynamic_dim(axis) and strides[0] != unknown
            strides.insert(0, strides[0] * kind.shape[axis] if known else unknown)
        layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), strides[: kind.rank])
        shape = [unknown if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)]
        return ir.Operation.create(
            "bufferization.to_buffer", results=[ir.MemRefType.get(shape, kind.element_type, layout)],
            operands=[value], attributes={"read_only": ir.UnitAttr.get()},
        ).result

    def _is_dense(self, value: ir.Value) -> bool:
        """Whether the memory of `value` will have no gaps: it is a whole tensor that is carried, given or made by a
        call, or leading rows of one."""
        if value in self.dense or isinstance(value.owner, ir.Block):
            return True
        owner = value.owner.operation
        if owner.name in _RESHAPES:
            return self._is_dense(owner.operands[0])
        if owner.name == "tensor.extract_slice":
            return _is_rows(owner) and self._is_dense(owner.operands[0])
        return False

    def _address(self, memory: ir.Value, item: int) -> ir.Value:
        """The address of the first element of `memory`, as i64; `item` bytes each, 0 if its offset is 0."""
        index = ir.IndexType.get()
        base = ir.Operation.create(
            "memref.extract_aligned_pointer_as_index", results=[index], operands=[memory]
        ).result
        if item:
            kind = ir.MemRefType(memory.type)
            parts = ir.Operation.create(
                "memref.extract_strided_metadata",
                results=[ir.MemRefType.get([], kind.element_type), index, *[index] * (2 * kind.rank)],
                operands=[memory],
            )
            size = arith.ConstantOp(index, item).result
            base = arith.AddIOp(base, arith.MulIOp(parts.results[1], size).result).result
        return self._word(base)

    def _allocated(self, kind: ir.Type, sizes: Sequence[ir.Value]) -> ir.Value:
        tensor = ir.RankedTensorType(kind)
        unknown = ir.ShapedType.get_dynamic_size()
        shape = [unknown if tensor.is_dynamic_dim(axis) else tensor.shape[axis] for axis in range(tensor.rank)]
        return _alloc(ir.MemRefType.get(shape, tensor.element_type), sizes)

    def _workspace(self, size: int) -> ir.Value:
        """`size` bytes that no other part of this call uses."""
        kind = ir.MemRefType.get([size], ir.IntegerType.get_signless(8))
        with ir.InsertionPoint.at_block_begin(self.block):
            return _alloc(kind, [])

    # -- sizes -----------------------------------------------------------------------------------

    def _word(self, value: ir.Value) -> ir.Value:
        return arith.IndexCastOp(self.i64, value).result

    def _size(self, found: BodyKernel, size: Size) -> ir.Value:
        index = ir.IndexType.get()
        if isinstance(size, int):
            return arith.ConstantOp(index, size).result
        number, axis = size[1:].split("_")
        place = arith.ConstantOp(index, int(axis)).result
        operands = [self._argument(found, int(number)), place]
        return ir.Operation.create("tensor.dim", results=[index], operands=operands).result

    def _value(self, found: BodyKernel, expression: Expr) -> ir.Value:
        if isinstance(expression, (int, str)):
            return self._size(found, expression)
        operator, left, right = expression
        operands = [self._value(found, left), self._value(found, right)]
        return ir.Operation.create(_ARITHMETIC[str(operator)], results=[ir.IndexType.get()], operands=operands).result

    # -- the loop --------------------------------------------------------------------------------

    def carry(self, block: ir.Block) -> None:
        """Makes the loop of `block` write the tensors that it carries in place."""
        loop = block.owner.operation
        if loop.name != "scf.for":
            return
        terminator = block.operations[len(block.operations) - 1].operation
        moved: list[tuple[int, ir.Value]] = []
        for number, value in enumerate(terminator.operands):
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            initial = loop.operands[3 + number]
            if not self._is_dense(initial):
                with ir.InsertionPoint(loop), loop.location:
                    loop.operands[3 + number] = _copied(initial)
            if written_into(value) != block.arguments[1 + number]:
                moved.append((number, value))
        with ir.InsertionPoint(terminator), terminator.location:
            # What may be the memory of a carried tensor is read before any of them is written.
            moved = [(number, value if value in self.made else _copied(value)) for number, value in moved]
            for number, value in moved:
                terminator.operands[number] = ir.Operation.create(
                    "bufferization.materialize_in_destination", results=[value.type],
                    operands=[value, block.arguments[1 + number]],
                ).result

    def finish(self, count: int) -> None:
        """Drops constants that only calls read, as they are packed."""
        dropped = [
            number for number in range(count)
            if any(self.calls.operands[extra] == number for extra in range(count, len(self.calls.operands)))
            and not any(True for _ in self.block.arguments[number].uses)
        ]
        for number in reversed(dropped):
            self.block.erase_argument(number)
            del self.calls.operands[number], self.calls.packings[number]
        if "arg_attrs" in self.function.attributes:
            del self.function.attributes["arg_attrs"]
        old = ir.FunctionType(ir.TypeAttr(self.function.attributes["function_type"]).value)
        kind = ir.FunctionType.get([argument.type for argument in self.block.arguments], old.results)
        self.function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _alloc(kind: ir.Type, sizes: Sequence[ir.Value]) -> ir.Value:
    attributes = {
        "alignment": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _ALIGNMENT),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(sizes), 0]),
    }
    return ir.Operation.create("memref.alloc", results=[kind], operands=list(sizes), attributes=attributes).result


def _copied(value: ir.Value) -> ir.Value:
    return ir.Operation.create(
        "bufferization.alloc_tensor", results=[value.type], operands=[value],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1, 0])},
    ).result


def _is_rows(slice_: ir.Operation) -> bool:
    """Whether an `extract_slice` takes neighbouring elements of a dense tensor: whole axes behind the first that has
    more than one element."""
    kind = ir.RankedTensorType(slice_.operands[0].type)
    sizes, strides = (list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{name}"])) for name in ("sizes", "strides"))
    if any(stride != 1 for stride in strides):
        return False
    unknown = ir.ShapedType.get_dynamic_size()
    offsets = sum(each == unknown for each in ir.DenseI64ArrayAttr(slice_.attributes["static_offsets"]))
    dynamic = iter(list(slice_.operands)[1 + offsets :])
    begun = False
    for axis, size in enumerate(sizes):
        given = next(dynamic) if size == unknown else None
        whole = is_extent(given, slice_.operands[0], axis) if given is not None else (
            not kind.is_dynamic_dim(axis) and kind.shape[axis] == size
        )
        if begun and not whole:
            return False
        begun = begun or size != 1
    return True


def _sort(block: ir.Block) -> None:
    """Moves each operation of `block` behind its operands, otherwise keeping the order."""
    operations = [entry.operation for entry in block.operations]
    terminator = operations[-1]
    own, done = set(operations), set[ir.Operation]()

    def needed(operation: ir.Operation) -> list[ir.Operation]:
        found: list[ir.Operation] = []

        def look(each: ir.Operation) -> ir.WalkResult:
            found.extend(o.owner.operation for o in each.operands if not isinstance(o.owner, ir.Block))
            return ir.WalkResult.ADVANCE

        operation.walk(look)
        return [each for each in found if each in own and each != operation]

    def place(operation: ir.Operation) -> None:
        if operation in done:
            return
        done.add(operation)
        for each in needed(operation):
            place(each)
        operation.move_before(terminator)

    for operation in operations[:-1]:
        place(operation)


def _wrapper(name: str, phases: Sequence[Phase], buffers: int, sizes: int) -> str:
    """LLVM IR of the function that a loop calls: addresses of buffers, sizes, numbers of tasks, scratch memory."""
    numbers = [*(f"b{i}" for i in range(buffers)), *(f"s{i}" for i in range(sizes)),
               *(f"t{i}" for i in range(len(phases))), "scratch"]
    lines = [f'define void @"{name}"({", ".join(f"i64 %{each}" for each in numbers)}) {{']
    lines += ["  %scratch.at = inttoptr i64 %scratch to ptr", f"  %sizes = alloca [{max(1, sizes)} x i64]"]
    for number in range(sizes):
        lines.append(f"  %size.at{number} = getelementptr i64, ptr %sizes, i64 {number}")
        lines.append(f"  store i64 %s{number}, ptr %size.at{number}")
    for p, phase in enumerate(phases):
        taken = range(buffers) if phase.buffers is None else phase.buffers
        lines.append(f"  %buffers{p} = alloca [{max(1, len(taken))} x ptr]")
        for place, number in enumerate(taken):
            lines.append(f"  %at{p}.{place} = getelementptr ptr, ptr %buffers{p}, i64 {place}")
            lines.append(f"  %pointer{p}.{place} = inttoptr i64 %b{number} to ptr")
            lines.append(f"  store ptr %pointer{p}.{place}, ptr %at{p}.{place}")
        lines.append(
            f'  call void @"{phase.symbol}"(ptr %buffers{p}, ptr %sizes, i64 0, i64 %t{p}, ptr %scratch.at)'
        )
    return "\n".join([*lines, "  ret void", "}", ""])
