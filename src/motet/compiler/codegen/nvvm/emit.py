"""Generates code for a launch as written: functions in LLVM IR that the driver launches.

A launch writes to the buffers of its kernel's results. If the program reads their previous contents, a function that
runs first copies them there (`keep`), unless both share memory already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.artifact.expressions import apply, product
from motet.artifact.schema import Expr
from motet.compiler.codegen.backend import whole_operands
from motet.compiler.codegen.nvvm.body import make_body
from motet.compiler.codegen.nvvm.collectives import COLLECTIVE, lower_collectives
from motet.compiler.codegen.nvvm.entry import KEPT_BYTES, KEPT_THREADS, PACKED, Argument, entry_text, keep_text
from motet.compiler.codegen.nvvm.lower import lower_body
from motet.compiler.codegen.nvvm.program import LaunchFunction, NvvmCode
from motet.compiler.codegen.nvvm.shared import gather_shared
from motet.compiler.codegen.nvvm.written import Written, constant, read_written
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.reader.reading import dtype_of
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CompileError

_BLOCKS_PER_SM = 4  # blocks per SM if the grid is known only at run time
_MOST_BLOCKS = 2**31 - 1
_MOST_THREADS = 1024
_PLAIN_THREADS = 128  # threads of a block from which on blocks are launched unpacked
_TOTAL = "motet_blocks"

Extents = tuple[tuple[str, str, int, int], ...]


@dataclass(frozen=True)
class _Buffers:
    """The buffers of a kernel's function: its arguments, its results, then memory private to the launch. `shapes` have
    sizes as symbols; `extents` are the sources of the symbols."""

    arguments: int
    shapes: list[tuple[int | str, ...]]
    dtypes: list[str]
    extents: Extents


def emit_launch(function: ir.Operation, symbol: str, target: GpuTarget) -> Compiled:
    """Generate code for `function`, a kernel that stands for a launch. Raises CompileError at the program's operation
    for operations without code and for launches that these devices do not support."""
    with function.context, ir.Location.unknown():
        written = read_written(function)
        buffers = _read_buffers(function)
        _check(written, target)
        arguments, spaces = _arguments(written, buffers)
        code = _LaunchEmitter(written, symbol, target, buffers, arguments, spaces).run()
        return whole_operands(function, code, buffers.extents)


class _LaunchEmitter:
    def __init__(
        self, written: Written, symbol: str, target: GpuTarget, buffers: _Buffers, arguments: list[Argument],
        spaces: list[int],
    ) -> None:
        self.written, self.symbol, self.target = written, symbol, target
        self.buffers, self.arguments, self.spaces = buffers, arguments, spaces
        self.sizes = len(buffers.extents)

    def run(self) -> NvvmCode:
        functions = [*self._keep(), self._launch()]
        pairs = [(source, target) for source, target, *_ in self._kept()]
        return NvvmCode(
            "launch", "", tuple(Phase(f.symbol, f.tasks, f.buffers) for f in functions), workspaces=tuple(self.spaces),
            updates=tuple(pairs), functions=tuple(functions),
        )

    def _kept(self) -> list[tuple[int, int, str, tuple[int | str, ...]]]:
        """Results with initial contents: the source buffer, the result buffer, bytes per element and the extents."""
        found: list[tuple[int, int, str, tuple[int | str, ...]]] = []
        for position, argument in enumerate(self.written.results):
            source, target = self.written.operands[argument], self.buffers.arguments + position
            if source >= 0:
                shape = tuple(f"%{e}" if isinstance(e, str) else e for e in self.buffers.shapes[target])
                found.append((source, target, str(item_bytes(self.buffers.dtypes[target])), shape))
        return found

    def _keep(self) -> list[LaunchFunction]:
        pairs = self._kept()
        if not pairs:
            return []
        tasks: Expr = 1
        for _, target, item, _ in pairs:
            size = apply("*", product(self.buffers.shapes[target]), int(item))
            tasks = apply("max", tasks, apply("ceildiv", size, KEPT_BYTES))
        symbol = f"{self.symbol}_keep"
        buffers = tuple(sorted({number for source, target, *_ in pairs for number in (source, target)}))
        text = keep_text(symbol, buffers, self.sizes, pairs)
        return [LaunchFunction(symbol, text, buffers, self.sizes, KEPT_THREADS, 0, tasks)]

    def _launch(self) -> LaunchFunction:
        written = self.written
        place = source_location(written.launch)
        threads = _threads(written)
        blocks = _blocks(written, self.arguments)
        total = None if isinstance(blocks, int) else _total_function(written)
        shared = constant(written.shared) if written.shared is not None else 0
        if shared is None:
            raise CompileError(
                "gpu.launch_func: how much memory a block gets is only known when running; expected a constant for "
                "cuda devices", place,
            )
        container = written.kernel.parent.operation
        body = make_body(written)
        alone = not _is_collective(body) and not shared
        lower_collectives(body, threads, len(self.arguments) + 2)
        if total is not None:
            container.regions[0].blocks[0].append(total)
        text, bytes_ = gather_shared(lower_body(container), shared)
        if bytes_ > self.target.shared:
            raise CompileError(
                f"gpu.launch_func: a block needs {bytes_} bytes of workgroup memory; {self.target.name} has "
                f"{self.target.shared}", place,
            )
        mode: Literal["plain", "packed", "turns"] = "plain"
        tasks: Expr = blocks if blocks is not None else _BLOCKS_PER_SM * self.target.processors
        if blocks is None:
            mode = "turns"
        elif alone and (threads < _PLAIN_THREADS or threads % 32):
            mode, tasks = "packed", apply("ceildiv", apply("*", blocks, threads), PACKED)
        if isinstance(tasks, int) and tasks > _MOST_BLOCKS:
            raise CompileError(
                f"gpu.launch_func: a grid of {tasks} blocks; expected at most {_MOST_BLOCKS} altogether for cuda "
                "devices", place,
            )
        count = blocks if isinstance(blocks, int) else _TOTAL
        buffers = tuple(sorted({argument.buffer for argument in self.arguments}))
        entry = entry_text(self.symbol, buffers, self.sizes, self.arguments, mode, threads, count)
        return LaunchFunction(
            self.symbol, f"{_without(text, entry)}\n{entry}", buffers, self.sizes,
            PACKED if mode == "packed" else threads, bytes_, tasks,
        )


def _without(text: str, entry: str) -> str:
    """`text` without the declarations that `entry` contains too."""
    names = set(re.findall(r"^declare [^@]*(@[\w.]+)\(", entry, re.MULTILINE))
    lines = text.splitlines()
    return "\n".join(
        line for line in lines
        if not ((match := re.match(r"declare [^@]*(@[\w.]+)\(", line)) and match[1] in names)
    )


# -- supported launches --------------------------------------------------------------------------------


def _check(written: Written, target: GpuTarget) -> None:
    place = source_location(written.launch)
    if not target.is_cuda:
        raise CompileError(
            f"gpu.launch_func: a launch that is kept as it was written has no code for {target.family} devices; place "
            "it on another device, such as the host", place,
        )
    if any(constant(size) != 1 for size in written.cluster):
        raise CompileError("gpu.launch_func: clusters of blocks are not supported; expected none", place)


def _threads(written: Written) -> int:
    sizes = [constant(size) for size in written.block]
    found = 1
    for size in sizes:
        if size is None:
            raise CompileError(
                "gpu.launch_func: the size of a block is only known when running; expected constants for cuda devices",
                source_location(written.launch),
            )
        found *= size
    if not 1 <= found <= _MOST_THREADS:
        raise CompileError(
            f"gpu.launch_func: a block of {found} threads; expected 1 to {_MOST_THREADS}",
            source_location(written.launch),
        )
    return found


def _blocks(written: Written, arguments: Sequence[Argument]) -> Expr | None:
    """The number of blocks; None if it is computed on the GPU."""
    extents = {
        value: argument.shape
        for value, argument in zip(written.host.regions[0].blocks[0].arguments, arguments, strict=True)
        if argument.shape is not None
    }
    total: Expr = 1
    for size in written.grid:
        found = _expression(size, extents)
        if found is None:
            return None
        total = apply("*", total, found)
    return total


_OPERATORS = {
    "arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.ceildivui": "ceildiv", "arith.ceildivsi": "ceildiv",
    "arith.divui": "//", "arith.maxui": "max", "arith.maxsi": "max", "arith.minui": "min", "arith.minsi": "min",
}  # fmt: skip


def _expression(value: ir.Value, extents: Mapping[ir.Value, tuple[int | str, ...]]) -> Expr | None:
    """`value` as an expression over the extents of buffers."""
    number = constant(value)
    if number is not None:
        return number
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name in ("arith.index_cast", "arith.index_castui"):
        return _expression(owner.operands[0], extents)
    if owner.name == "memref.dim":
        axis = constant(owner.operands[1])
        if axis is None or owner.operands[0] not in extents:
            return None
        extent = extents[owner.operands[0]][axis]
        return extent.removeprefix("%") if isinstance(extent, str) else extent
    if owner.name in _OPERATORS:
        left, right = (_expression(operand, extents) for operand in owner.operands)
        return None if left is None or right is None else apply(_OPERATORS[owner.name], left, right)
    return None


def _total_function(written: Written) -> ir.Operation:
    """A function of the arguments of `written.host` that returns the number of blocks."""
    copy = written.host.clone()
    kind = ir.FunctionType(ir.TypeAttr(copy.attributes["function_type"]).value)
    long = ir.IntegerType.get_signless(64)
    copy.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs, [long]))
    copy.attributes["sym_name"] = ir.StringAttr.get(_TOTAL)
    for name in ("sym_visibility", "res_attrs", "arg_attrs", "no_inline"):
        if name in copy.attributes:
            del copy.attributes[name]
    block = copy.regions[0].blocks[0]
    launch = next(e.operation for e in block.operations if e.operation.name == "gpu.launch_func")
    sizes = Written(written.module, copy, launch, written.kernel, (), ()).grid
    last = block.operations[len(block.operations) - 1].operation
    index = ir.IndexType.get()
    total: ir.Value | None = None
    for size in sizes:
        if size.type != index:
            size = ir.Operation.create(
                "arith.index_cast", results=[index], operands=[size], loc=copy.location, ip=ir.InsertionPoint(last)
            ).result
        total = size if total is None else ir.Operation.create(
            "arith.muli", results=[index], operands=[total, size], loc=copy.location, ip=ir.InsertionPoint(last)
        ).result  # fmt: skip
    number = ir.Operation.create(
        "arith.index_cast", results=[long], operands=[total] if total is not None else [], loc=copy.location,
        ip=ir.InsertionPoint(last),
    ).result
    ir.Operation.create("func.return", operands=[number], loc=copy.location, ip=ir.InsertionPoint(last))
    last.erase()
    launch.erase()
    return copy


def _is_collective(body: ir.Operation) -> bool:
    """Whether threads of a block interact: by barriers, shuffles or memory."""
    name = "workgroup_attributions"
    found = name in body.attributes and ir.IntegerAttr(body.attributes[name]).value > 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        if op.operation.name in (*COLLECTIVE, "gpu.dynamic_shared_memory", "memref.get_global", "func.call"):
            found = True
        return ir.WalkResult.ADVANCE

    body.walk(visit)
    return found


# -- buffers -------------------------------------------------------------------------------------------


def _read_buffers(function: ir.Operation) -> _Buffers:
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    shapes: list[tuple[int | str, ...]] = []
    dtypes: list[str] = []
    extents: list[tuple[str, str, int, int]] = []
    for which, kinds in (("argument", kind.inputs), ("result", kind.results)):
        for number, each in enumerate(kinds):
            tensor = ir.RankedTensorType(each)
            shape: list[int | str] = []
            for axis in range(tensor.rank):
                if tensor.is_dynamic_dim(axis):
                    shape.append(f"s{len(extents)}")
                    extents.append((f"s{len(extents)}", which, number, axis))
                else:
                    shape.append(tensor.get_dim_size(axis))
            shapes.append(tuple(shape))
            dtypes.append(dtype_of(tensor))
    return _Buffers(len(kind.inputs), shapes, dtypes, tuple(extents))


def _arguments(written: Written, buffers: _Buffers) -> tuple[list[Argument], list[int]]:
    """The memory of the body's arguments, and the bytes of memory that is private to the launch."""
    arguments: list[Argument] = []
    spaces: list[int] = []
    for number, value in enumerate(written.host.regions[0].blocks[0].arguments):
        writes = number in written.results
        at = buffers.arguments + written.results.index(number) if writes else written.operands[number]
        if at < 0:
            kind = ir.MemRefType(value.type)
            if not kind.has_static_shape:
                raise CompileError(
                    "gpu.launch_func: memory of unknown size that nothing has written is read",
                    source_location(written.launch),
                )
            bytes_ = item_bytes(str(kind.element_type))
            for extent in kind.shape:
                bytes_ *= extent
            at = len(buffers.shapes) + len(spaces)
            spaces.append(bytes_)
            arguments.append(Argument(at, str(kind.element_type), tuple(kind.shape), True, _space(kind, written)))
        elif isinstance(value.type, ir.MemRefType):
            shape = tuple(f"%{extent}" if isinstance(extent, str) else extent for extent in buffers.shapes[at])
            arguments.append(Argument(at, buffers.dtypes[at], shape, writes, _space(value.type, written)))
        else:
            arguments.append(Argument(at, str(value.type), None, False))
    return arguments, spaces


def _space(kind: ir.MemRefType, written: Written) -> int:
    """The LLVM address space of a memref: 0 for generic, 1 for global memory."""
    space = kind.memory_space
    if space is None:
        return 0
    if str(space) in ("1", "1 : i64", "1 : i32", "#gpu.address_space<global>"):
        return 1
    if str(space) in ("0", "0 : i64", "0 : i32"):
        return 0
    raise CompileError(
        f"gpu.launch_func: an argument of type {kind} is in an address space that launches do not support; "
        "expected none or #gpu.address_space<global>", source_location(written.launch),
    )


