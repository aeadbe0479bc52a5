"""keep-launches: replaces a launch by a call of a private function with the launch as written and as loops.

    gpu.launch_func @m::@k blocks in (…) threads in (…) args(%x, %n, %y)
      →  call @k_launch_0(%x, %y)
         func.func private @k_launch_0(%x: memref<…>, %y: memref<…>)
             attributes {motet.launch = "<the launch and its kernel>", no_inline} { <loops> }

The computation of the launch's operands (numbers, views, extents) moves into the function, so that its arguments are
whole buffers and the numbers that the program's caller gives. `settle_launches` then raises the loops: a function that
becomes operations of `linalg` entirely is inlined again, without its launch; the others are kept, as functions on
tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.gpu.checks import computed_with, find_kernel, sizes_with
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.raising.raise_loops import raise_loops
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.launches import AS_WRITTEN, LAUNCH
from motet.compiler.ir.remap import remap

_PURE = ("arith.", "index.", "affine.apply", "affine.min", "affine.max", "memref.dim")
_VIEWS = (
    "memref.cast", "memref.memory_space_cast", "memref.subview", "memref.expand_shape", "memref.collapse_shape",
)  # fmt: skip
_NO_INLINE = "no_inline"


@dataclass(frozen=True)
class Kept:
    """`launch` is the launch in the function that replaces the original, to be lowered to loops; None if the original
    remains, or if an equal launch was already kept (`known`)."""

    launch: ir.Operation | None = None
    known: bool = False


def keep_launch(module: ir.Module, launch: ir.Operation) -> Kept:
    """Inserts a call of a new function for `launch`, a `gpu.launch_func`, before it. Launches in loops and branches,
    and launches with numbers that are only known at run time, are left unchanged."""
    function = launch.parent.operation
    if function.name != "func.func" or len(list(function.regions[0].blocks)) != 1:
        return Kept()
    moved, leaves = closure(computed_with(launch))
    if any(not isinstance(leaf.type, ir.MemRefType) and not isinstance(leaf.owner, ir.Block) for leaf in leaves):
        return Kept()
    if not all(_may_be_row_major(leaf.type) for leaf in leaves):
        return Kept()  # kernels receive row-major buffers
    kernel = find_kernel(module, launch)
    name = fresh_name(module, symbol_name(kernel))
    made = keep_function(module, name, leaves, launch.location)
    block = made.regions[0].blocks[0]
    inner = _fill(made, launch, moved, dict(zip(leaves, block.arguments, strict=True)))
    text = _text(made, kernel)
    same = next(
        (each for each in launches(module) if ir.StringAttr(each.attributes[LAUNCH]).value == text), None
    )
    keep_function(module, name, leaves, launch.location, made, text)
    if AS_WRITTEN in kernel.attributes or any(op.name == "gpu.printf" for op in within(kernel)):
        made.attributes[AS_WRITTEN] = ir.UnitAttr.get()
    named = {a: launch.attributes[a] for a in launch.attributes if a.startswith("motet.")}
    callee = name if same is None else same.name.value
    ir.Operation.create(
        "func.call", operands=leaves, attributes={**named, "callee": ir.FlatSymbolRefAttr.get(callee)},
        loc=launch.location, ip=ir.InsertionPoint(launch),
    )  # fmt: skip
    if same is None:
        return Kept(inner)
    made.erase()
    return Kept(known=True)


def _may_be_row_major(kind: ir.Type) -> bool:
    """Whether the strides and offset of a memref's layout, as far as they are static, match row-major memory."""
    if not isinstance(kind, ir.MemRefType):
        return True
    try:
        strides, offset = kind.get_strides_and_offset()
    except RuntimeError:  # not a strided layout
        return False
    unknown = ir.ShapedType.get_dynamic_stride_or_offset()
    expected = 1
    for axis in reversed(range(kind.rank)):
        if strides[axis] not in (unknown, expected):
            return False
        expected = unknown if kind.is_dynamic_dim(axis) or expected == unknown else expected * kind.shape[axis]
    return offset in (0, unknown)


def keep_function(
    module: ir.Module, name: str, leaves: list[ir.Value], location: ir.Location, made: ir.Operation | None = None,
    text: str = "",
) -> ir.Operation:
    """A new private function of `leaves` with an empty body; or `made`, completed to represent the launch `text`."""
    if made is None:
        with location:
            function = func.FuncOp(
                name, ir.FunctionType.get([leaf.type for leaf in leaves], []), visibility="private",
                ip=ir.InsertionPoint(module.body),
            )
            block = function.add_entry_block([leaf.location for leaf in leaves])
            with ir.InsertionPoint(block):
                func.ReturnOp([])
        return function.operation
    made.attributes[LAUNCH] = ir.StringAttr.get(text)
    made.attributes[_NO_INLINE] = ir.UnitAttr.get()
    return made


def settle_launches(module: ir.Module) -> bool:
    """Raises the loops of all kept launches; returns whether some became `linalg` entirely, and are to be inlined.

    The others still operate on memory, as do their calls: both are converted to tensors after inlining.
    """
    forgotten = False
    for entry in list(module.body.operations):
        if not isinstance(entry, func.FuncOp) or LAUNCH not in entry.operation.attributes:
            continue
        raise_loops(entry)
        if AS_WRITTEN not in entry.attributes and not any(op.name.startswith("scf.") for op in within(entry.operation)):
            del entry.attributes[LAUNCH]
            del entry.attributes[_NO_INLINE]
            forgotten = True
    return forgotten


def launches(module: ir.Module) -> list[func.FuncOp]:
    """The functions that represent launches."""
    return [
        entry for entry in module.body.operations
        if isinstance(entry, func.FuncOp) and LAUNCH in entry.operation.attributes
    ]


def pass_scalars(function: func.FuncOp) -> None:
    """Passes to launches the caller's tensors of rank 0 instead of scalars extracted from them."""
    for entry in function.regions[0].blocks[0].operations:
        call = entry.operation
        if call.name != "func.call":
            continue
        for number, operand in enumerate(call.operands):
            if isinstance(operand.owner, ir.Block) or operand.owner.operation.name != "tensor.from_elements":
                continue
            scalar = operand.owner.operation.operands[0]
            if not isinstance(scalar.owner, ir.Block) and scalar.owner.operation.name == "tensor.extract":
                source = scalar.owner.operation.operands[0]
                if source.type == operand.type:
                    call.operands[number] = source


def closure(values: list[ir.Value]) -> tuple[list[ir.Operation], list[ir.Value]]:
    """The side-effect-free operations that compute `values`, in order, and the values that they depend on in the
    end."""
    moved: list[ir.Operation] = []
    leaves: list[ir.Value] = []
    seen: set[ir.Value] = set()

    def visit(value: ir.Value) -> None:
        if value in seen:
            return
        seen.add(value)
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is None or not _moves(owner):
            leaves.append(value)
            return
        for operand in owner.operands:
            visit(operand)
        moved.append(owner)

    for value in values:
        visit(value)
    return moved, leaves


def _moves(operation: ir.Operation) -> bool:
    if len(operation.results) != 1 or len(operation.regions):
        return False
    shaped = isinstance(operation.results[0].type, ir.ShapedType)
    return operation.name in _VIEWS if shaped else operation.name.startswith(_PURE)


def _fill(
    function: ir.Operation, launch: ir.Operation, moved: list[ir.Operation], values: dict[ir.Value, ir.Value]
) -> ir.Operation:
    """Copies `launch` into `function`, after copies of the operations that compute its operands."""
    block = function.regions[0].blocks[0]
    last = block.operations[len(block.operations) - 1].operation
    for operation in moved:
        with ir.InsertionPoint(last):
            copy = operation.clone()
        remap(copy, values)
        values[operation.results[0]] = copy.results[0]
    operands = [values[value] for value in computed_with(launch)]
    attributes = {name: launch.attributes[name] for name in launch.attributes if not name.startswith("motet.")}
    attributes["operandSegmentSizes"] = sizes_with(launch, tokens=0)
    return ir.Operation.create(
        launch.name, operands=operands, attributes=attributes, loc=launch.location, ip=ir.InsertionPoint(last)
    )


def _text(function: ir.Operation, kernel: ir.Operation) -> str:
    """A module with `function` as `@launch`, and the kernel's module reduced to that kernel."""
    holder = ir.Module.create(loc=function.location)
    holder.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    copy = function.clone()
    copy.attributes["sym_name"] = ir.StringAttr.get("launch")
    holder.body.append(copy)
    container = kernel.parent.operation.clone()
    holder.body.append(container)
    name = kernel.attributes["sym_name"]
    for entry in list(container.regions[0].blocks[0].operations):
        other = entry.operation
        if other.name in ("gpu.func", "func.func") and other.attributes["sym_name"] != name:
            other.erase()
    return holder.operation.get_asm(enable_debug_info=True, assume_verified=True)


def fresh_name(module: ir.Module, kernel: str) -> str:
    taken = {
        symbol_name(entry.operation)
        for entry in module.body.operations if "sym_name" in entry.operation.attributes
    }
    return next(name for i in range(len(taken) + 1) if (name := f"{kernel}_launch_{i}") not in taken)
