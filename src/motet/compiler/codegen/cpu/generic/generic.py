"""Code for any function on tensors, by upstream's lowering to loops and LLVM's own vectorisers.

    func.func private @k(%a: tensor<?x8xf32>) -> tensor<?x8xf32>
      →  memory: each result becomes a buffer to write into                  (one-shot-bufferize)
      →  loops: the outermost ones become tasks where no iteration depends on another
      →  elementary functions: calls of definitions that are inlined before LLVM vectorises
      →  LLVM IR: a body on memory descriptors, and `@k` with the signature of every kernel

It handles what no other class supports: control flow, gathers, complex numbers, integers of any width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from motet.artifact.expressions import apply
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.elementary import call_elementary, define_elementary
from motet.compiler.codegen.cpu.generic.brain_bits import move_as_bits
from motet.compiler.codegen.cpu.generic.check_exits import define_exit, exit_on_failure
from motet.compiler.codegen.cpu.generic.check_loops import check_behind, hoist_checks, hoist_loads
from motet.compiler.codegen.cpu.generic.checks import add_checks
from motet.compiler.codegen.cpu.generic.truth_bytes import load_truth_as_bytes
from motet.compiler.codegen.cpu.recurrence.bodies import Generate
from motet.compiler.codegen.cpu.recurrence.calls import LoopCalls, call_kernels
from motet.compiler.codegen.cpu.rows.tasks import PRIVATE, Rows, mark_private, split_rows
from motet.compiler.codegen.llvm.text import to_llvmlite
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.decompose import copies_to_linalg, decompose, emulate_bfloat16, own_memory
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.guard_divisions import guard_divisions
from motet.compiler.ir.program import checks_indices
from motet.compiler.ir.store_short import store_short_elements
from motet.compiler.ir.translate import source_location, translate_to_llvm
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.scheduling.carried import first_write
from motet.errors import CompileError

Extent = tuple[Literal["argument", "result"], int, int]

_BODY = "motet.body"
_STACK_BYTES = 4096  # a temporary of up to so many bytes is allocated on the stack
_DYNAMIC = -1
_INTERNAL = re.compile(r"^define (?:linkonce_odr )?(?!internal |private |linkonce_odr )", re.MULTILINE)

_INLINE = "inline,symbol-dce,func.func(linalg-generalize-named-ops),canonicalize,cse"
_FUSE = "func.func(linalg-fuse-elementwise-ops),canonicalize,cse"
_BUFFERIZE = (
    "eliminate-empty-tensors,empty-tensor-to-alloc-tensor,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map allow-return-allocs-from-loops=1},"
    "canonicalize,cse"
)
_HOIST = "func.func(buffer-hoisting,buffer-loop-hoisting)"
_LOOPS = (
    "ownership-based-buffer-deallocation,canonicalize,buffer-deallocation-simplification,"
    "bufferization-lower-deallocations,convert-bufferization-to-memref,func.func(convert-linalg-to-loops),"
    "fold-memref-alias-ops,canonicalize,cse,func.func(loop-invariant-code-motion),canonicalize"
)
_MATH = (
    "func.func(expand-realloc),memref-expand,expand-strided-metadata,lower-affine,"
    "math-expand-ops{ops=rsqrt,clampf},convert-math-to-funcs{convert-ctlz=0},convert-complex-to-libm,"
    "convert-complex-to-standard,convert-math-to-llvm,convert-math-to-libm"
)
_EXPAND = "arith-expand{include-bf16=1}"
_TO_LLVM = (
    "finalize-memref-to-llvm,convert-complex-to-llvm,"
    "convert-math-to-llvm,convert-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
)

@dataclass(frozen=True)
class GenericCode:
    """`code`, and the dynamic extents that it receives as sizes: those of every argument, then of every
    result, axis by axis. Task counts name them `s0`, `s1`, … in that order. `operands` are the numbers of the
    function's arguments that are its buffers, in the layout of `packings`, if any."""

    code: KernelCode
    extents: tuple[Extent, ...]
    operands: tuple[int, ...]
    packings: tuple[Packing | None, ...]


@dataclass(frozen=True)
class _TensorBuffer:
    shape: tuple[int, ...]  # _DYNAMIC if not known
    item: ir.Type

    @property
    def memory(self) -> ir.Type:
        with self.item.context:
            dynamic = ir.ShapedType.get_dynamic_size()
            return ir.MemRefType.get([dynamic if n == _DYNAMIC else n for n in self.shape], self.item)


def emit_generic(function: ir.Operation, symbol: str, gathers: bool, generate: Generate | None = None) -> GenericCode:
    """Generate code for `function`, a `func.func` on ranked tensors that may call other functions of its module.
    `gathers` tells whether the CPU has gather instructions. `generate` makes code for kernels in the bodies of loops.

    The buffers of the compiled function are the arguments, then the results, dense and row-major. `function` is not
    modified. Raises `CompileError` for an operation or a type that upstream cannot lower.
    """
    if generate is not None:
        try:
            return _emit(function, symbol, gathers, generate)
        except CompileError:
            pass  # bufferization may refuse calls that read what the iteration overwrites
    return _emit(function, symbol, gathers, None)


def _emit(function: ir.Operation, symbol: str, gathers: bool, generate: Generate | None) -> GenericCode:
    with function.context, ir.Location.unknown():
        module, entry = _extract(function)
        store_short_elements(module)
        calls = LoopCalls() if generate is None else call_kernels(module, entry, symbol, generate)
        arguments = [_buffer(argument.type, function) for argument in entry.regions[0].blocks[0].arguments]
        results = [_buffer(kind, function) for kind in ir.FunctionType(_type(entry)).results]
        extents = _extents(arguments, results)
        _write_into_buffers(entry, arguments, results)
        body = _lower(module, len(arguments), extents, function, gathers, bool(calls.parts))
        temporaries = [_buffer_of(kind) for kind in body.temporaries]
        sizes = tuple(map(_bytes, body.temporaries))
    wrapper = _wrapper(symbol, arguments, [*results, *temporaries], body.rows, bool(body.checks))
    code = KernelCode(
        kind="generic", llvm=f"{body.llvm}\n{wrapper}", phases=(Phase(symbol, body.tasks),), workspaces=sizes,
        checks=body.checks, parts=tuple(calls.parts),
    )
    own = calls.operands or range(len(arguments))
    outside: tuple[Extent, ...] = tuple(
        (which, own[number] if which == "argument" else number, axis) for which, number, axis in extents
    )
    return GenericCode(code, outside, tuple(own), tuple(calls.packings) or (None,) * len(arguments))


# -- the function to lower -----------------------------------------------------------------------------


def _extract(function: ir.Operation) -> tuple[ir.Module, ir.Operation]:
    """A separate module with `function` and all that it calls, and the copy of `function` in it."""
    module = ir.Module.create()
    entry = function.clone()
    entry.attributes["sym_name"] = ir.StringAttr.get(_BODY)
    if "sym_visibility" in entry.attributes:
        del entry.attributes["sym_visibility"]
    module.body.append(entry)
    symbols = {
        symbol_name(operation): operation.operation
        for operation in function.parent.regions[0].blocks[0].operations
        if "sym_name" in operation.attributes
    }
    copied: set[str] = set()
    todo = _callees(entry)
    while todo:
        name = todo.pop()
        if name in copied or name not in symbols:
            continue
        copied.add(name)
        helper = symbols[name].clone()
        helper.attributes["sym_visibility"] = ir.StringAttr.get("private")
        module.body.append(helper)
        todo += _callees(helper)
    return module, entry


def _callees(function: ir.Operation) -> list[str]:
    found: list[str] = []

    def look(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "func.call":
            found.append(ir.FlatSymbolRefAttr(operation.attributes["callee"]).value)
        return ir.WalkResult.ADVANCE

    function.walk(look)
    return found


def _type(function: ir.Operation) -> ir.Type:
    return ir.TypeAttr(function.attributes["function_type"]).value


def _buffer(kind: ir.Type, function: ir.Operation) -> _TensorBuffer:
    try:
        tensor = ir.RankedTensorType(kind)
    except ValueError:
        raise CompileError(
            f"kernel functions take and give ranked tensors, not {kind}", source_location(function)
        ) from None
    shape = [_DYNAMIC if tensor.is_dynamic_dim(i) else tensor.get_dim_size(i) for i in range(tensor.rank)]
    return _TensorBuffer(tuple(shape), tensor.element_type)


def _extents(arguments: Sequence[_TensorBuffer], results: Sequence[_TensorBuffer]) -> tuple[Extent, ...]:
    found: list[Extent] = [("argument", index, axis) for index, axis in _dynamic(arguments)]
    return (*found, *(("result", index, axis) for index, axis in _dynamic(results)))


def _dynamic(buffers: Sequence[_TensorBuffer]) -> list[tuple[int, int]]:
    return [
        (index, axis)
        for index, buffer in enumerate(buffers)
        for axis, size in enumerate(buffer.shape)
        if size == _DYNAMIC
    ]


def _write_into_buffers(
    entry: ir.Operation, arguments: Sequence[_TensorBuffer], results: Sequence[_TensorBuffer]
) -> None:
    """Give `entry` an argument for the memory of each result, to which it writes the result instead of returning it."""
    block = entry.regions[0].blocks[0]
    inputs = [argument.type for argument in block.arguments]
    for argument in block.arguments:
        argument.set_location(entry.location)  # the function may come from another context
    outputs = [block.add_argument(result.memory, ir.Location.unknown()) for result in results]
    terminator = block.operations[len(block.operations) - 1]
    for value, memory in zip(terminator.operands, outputs, strict=True):
        _begin_in_place(value, memory)
    with ir.InsertionPoint(terminator), terminator.location:
        flags = {"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()}
        for value, memory in zip(terminator.operands, outputs, strict=True):
            ir.Operation.create(
                "bufferization.materialize_in_destination", operands=[value, memory], attributes=flags
            )
        ir.Operation.create("func.return")
    terminator.operation.erase()
    read_only = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
    no_attributes = ir.DictAttr.get({})
    for name in [name for name in entry.attributes if name not in ("sym_name", "function_type")]:
        del entry.attributes[name]
    entry.attributes["arg_attrs"] = ir.ArrayAttr.get([read_only] * len(arguments) + [no_attributes] * len(results))
    _set_inputs(entry, [*inputs, *(result.memory for result in results)])


def _begin_in_place(value: ir.Value, memory: ir.Value) -> None:
    """Make the loops that build the result `value` write to `memory` from the start."""
    use = first_write(value)
    if use is None or not value.owner.name.startswith(("scf.", "tensor.insert")):
        return
    writer, number = use
    source = writer.operands[number]
    taken = not isinstance(source.owner, ir.Block) and source.owner.name != "tensor.empty"
    if taken or writer.block != value.owner.operation.block:
        return
    with ir.InsertionPoint(writer), writer.location:
        if isinstance(source.owner, ir.Block):
            ir.Operation.create(
                "bufferization.materialize_in_destination", operands=[source, memory],
                attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
            )  # fmt: skip
        writer.operands[number] = ir.Operation.create(
            "bufferization.to_tensor", results=[source.type], operands=[memory],
            attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
        ).result  # fmt: skip


def _set_inputs(entry: ir.Operation, kinds: Sequence[ir.Type]) -> None:
    entry.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(kinds), []))


# -- lowering ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lowered:
    """LLVM IR of the body, its number of tasks, and whether it takes `begin` and `end`; the temporaries that are passed
    in after the results; the texts of its checks, if it takes the address of the status."""

    llvm: str
    tasks: Expr
    rows: bool
    temporaries: list[ir.MemRefType]
    checks: tuple[str, ...]


def _lower(
    module: ir.Module, arguments: int, extents: Sequence[Extent], function: ir.Operation, gathers: bool, calls: bool
) -> _Lowered:
    try:
        decompose(module)
        run_pipeline(module, _INLINE)
        if len(find_operations(_body(module), "linalg.generic")) > 1:  # one alone would absorb reshapes and be copied
            run_pipeline(module, _FUSE)
        checks = add_checks(_body(module), not checks_indices(function))
        own_memory(module)
        run_pipeline(module, _BUFFERIZE)
        if not calls:  # else its iterations are no tasks
            mark_private(_body(module))
        run_pipeline(module, _HOIST)
        copies_to_linalg(module)
        _small_to_stack(_body(module))
        temporaries = _large_to_arguments(_body(module))
        run_pipeline(module, _LOOPS)
        hoist_loads(_body(module), arguments)
        hoist_checks(_body(module), arguments)
        ranges = _split(_body(module))
        if gathers:
            check_behind(_body(module))
        called = call_elementary(module)
        run_pipeline(module, _MATH)
        emulate_bfloat16(module)
        run_pipeline(module, _EXPAND)
        guard_divisions(module)
        run_pipeline(module, "convert-scf-to-cf")
        checked = exit_on_failure(module, _body(module))
        if checked:
            _take_all_arguments(_body(module))
        run_pipeline(module, _TO_LLVM)
    except ir.MLIRError as error:
        detail = " ".join(str(error).split())
        raise CompileError(f"upstream's lowering fails: {detail}", source_location(function)) from error
    text = _INTERNAL.sub("define internal ", to_llvmlite(translate_to_llvm(module)))
    text = define_elementary(define_exit(text) if checked else text, called)
    text = move_as_bits(load_truth_as_bytes(text))
    return _Lowered(
        text, _tasks(ranges, arguments, extents), ranges is not None, temporaries, tuple(checks) if checked else ()
    )


def _body(module: ir.Module) -> ir.Operation:
    return ir.SymbolTable(module.operation)[_BODY].operation


def _small_to_stack(entry: ir.Operation) -> None:
    """Put small temporaries of the outermost block on the stack; in a loop, each iteration would allocate more."""
    for operation in list(entry.regions[0].blocks[0].operations):
        if operation.name != "memref.alloc":
            continue
        kind = ir.MemRefType(operation.results[0].type)
        if not kind.has_static_shape or _bytes(kind) > _STACK_BYTES:
            continue
        with ir.InsertionPoint(operation), operation.location:
            attributes = {name: operation.attributes[name] for name in operation.attributes}
            local = ir.Operation.create("memref.alloca", results=[kind], attributes=attributes)
        operation.results[0].replace_all_uses_with(local.results[0])
        operation.operation.erase()


def _large_to_arguments(entry: ir.Operation) -> list[ir.MemRefType]:
    """Turn temporaries of the outermost block into arguments, so that the memory plan includes them; returns their
    types. Temporaries of unknown size, and those carried by a loop, are allocated when needed."""
    block = entry.regions[0].blocks[0]
    found: list[ir.MemRefType] = []
    for operation in list(block.operations):
        if operation.name != "memref.alloc":
            continue
        kind = ir.MemRefType(operation.results[0].type)
        if PRIVATE in operation.attributes:
            continue  # each task needs its own
        plain = kind.has_static_shape and kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
        if not plain or kind.memory_space is not None:
            continue
        operation.results[0].replace_all_uses_with(block.add_argument(kind, operation.location))
        operation.operation.erase()
        found.append(kind)
    _take_all_arguments(entry)
    return found


def _buffer_of(kind: ir.MemRefType) -> _TensorBuffer:
    return _TensorBuffer(tuple(kind.shape), kind.element_type)


def _bytes(kind: ir.MemRefType) -> int:
    """An upper bound of the bytes of memory of `kind`."""
    match = re.search(r"\d+", str(kind.element_type))
    bits = int(match[0]) if match else 64
    return math.prod(kind.shape) * max(1, bits // 8) * (2 if "complex" in str(kind.element_type) else 1)


def _split(entry: ir.Operation) -> set[Rows] | None:
    ranges = split_rows(entry)
    if ranges is not None:
        _take_all_arguments(entry)
    return ranges


def _take_all_arguments(entry: ir.Operation) -> None:
    """Update a function's type after arguments were added to its entry block."""
    _set_inputs(entry, [argument.type for argument in entry.regions[0].blocks[0].arguments])
    if "arg_attrs" in entry.attributes:
        del entry.attributes["arg_attrs"]


def _tasks(ranges: set[Rows] | None, arguments: int, extents: Sequence[Extent]) -> Expr:
    """The number of tasks: the iterations of the longest of the outermost loops."""
    if ranges is None:
        return 1
    numbers = [rows for rows in ranges if isinstance(rows, int)]
    tasks: Expr = max(numbers, default=0)
    positions: list[int] = []
    for rows in ranges:
        if not isinstance(rows, int):
            position, axis = rows
            result = position - arguments
            which: Extent = ("argument", position, axis) if result < 0 else ("result", result, axis)
            positions.append(extents.index(which))
    for symbol in [f"s{position}" for position in sorted(positions)]:
        tasks = symbol if tasks == 0 else apply("max", tasks, symbol)
    return tasks


# -- the kernel's signature ----------------------------------------------------------------------------


def _wrapper(
    symbol: str, read: Sequence[_TensorBuffer], written: Sequence[_TensorBuffer], rows: bool, checked: bool
) -> str:
    """LLVM IR of the function that is called: makes descriptors of buffers and sizes, and calls the body. The address
    of the status, if there are checks, follows those of the buffers.

    Generic kernels update nothing in place: written memory is `noalias`, so that LLVM vectorises loops with loads at
    computed addresses."""
    buffers = [*read, *written]
    lines: list[str] = []
    operands: list[str] = []
    sizes = 0
    for number, buffer in enumerate(buffers):
        lines.append(f"  %at{number} = getelementptr inbounds ptr, ptr %buffers, i64 {number}")
        lines.append(f"  %buffer{number} = load ptr, ptr %at{number}")
        shape: list[str] = []
        for extent in buffer.shape:
            if extent == _DYNAMIC:
                lines.append(f"  %sizeat{sizes} = getelementptr inbounds i64, ptr %sizes, i64 {sizes}")
                lines.append(f"  %size{sizes} = load i64, ptr %sizeat{sizes}")
                shape.append(f"%size{sizes}")
                sizes += 1
            else:
                shape.append(str(extent))
        strides = ["1"] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = f"%stride{number}_{axis}"
            lines.append(f"  {strides[axis]} = mul nsw i64 {strides[axis + 1]}, {shape[axis + 1]}")
        own = "noalias " if number >= len(read) else ""
        operands += [f"ptr %buffer{number}", f"ptr {own}%buffer{number}", "i64 0"]
        operands += [f"i64 {word}" for word in (*shape, *strides)]
    if rows:
        operands += ["i64 %begin", "i64 %end"]
    if checked:
        lines.append(f"  %atstatus = getelementptr inbounds ptr, ptr %buffers, i64 {len(buffers)}")
        lines.append("  %statuses = load ptr, ptr %atstatus")
        lines.append("  %status = ptrtoint ptr %statuses to i64")
        operands.append("i64 %status")
    return "\n".join([
        f'define void @"{symbol}"(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{',
        *lines, f'  call void @"{_BODY}"({", ".join(operands)})', "  ret void", "}", "",
    ])
