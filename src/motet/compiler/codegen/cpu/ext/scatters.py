"""Scatters: updates written to, or combined with, elements of a tensor at computed indices.

    %y = tm_tensor.scatter {dimension_map = [0, 1]} ins(%updates, %indices) outs(%x) { yield %a }
        phase 0: y = x                                             blocks are tasks
        phase 1: y[indices[0]] = updates[0], y[indices[1]] = …     one task, one update after the other

If several updates address one element, the last one wins. Negative indices count from the end. Updates out of bounds
are omitted, and the first of them is an error of the call, unless the user promises that there are none.
"""

from __future__ import annotations

from llvmlite import ir

from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.body import evaluate
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.emit.compute_types import Unsupported, constant, from_storage, storage_type, to_storage
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.emit.operations import resize
from motet.compiler.codegen.cpu.task_split import Division
from motet.compiler.codegen.kernel_code import KernelCode, Phase
from motet.compiler.kernels.cost import traffic
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.linalg_ext import ExtOperand, Whole, product
from motet.compiler.kernels.strides import Extent, memory_strides
from motet.compiler.targets.cpu import CpuTarget

_VECTORS = 4  # copied at a time


def emit(whole: Whole, target: CpuTarget) -> KernelCode:
    """Raises `Unsupported` if an operand is neither a tensor nor a splat."""
    known = all(operand.value >= 0 or operand.number is not None for operand in whole.inputs)
    if not known or whole.results != (0,) or len(whole.yields) != 1:
        raise Unsupported("a scatter of this form")
    module = ir.Module(whole.kernel.name)
    names = (whole.kernel.name, f"{whole.kernel.name}_1")
    tasks = _copy(Frame(module, names[0], whole.kernel, {}, {}), whole, target)
    _scatter(Frame(module, names[1], whole.kernel, {}, {}), whole)
    return KernelCode(
        "scatter", str(module), (Phase(names[0], tasks), Phase(names[1], 1)),
        bytes=traffic(whole.kernel), checks=whole.checks,
    )


def _copy(f: Frame, whole: Whole, target: CpuTarget) -> Expr:
    """Copy the input tensor to the result, which the second phase updates."""
    original, result = whole.outputs[0], len(f.kernel.values) - 1
    kind = storage_type(original.dtype)
    lanes = target.lanes(8 * item_bytes(original.dtype))
    division = Division.of(
        [], product(f.kernel.values[result].shape), 0.5 / lanes, cut=True, multiple=_VECTORS * lanes
    )

    def row(_: list[Index], first: Index, end: Index) -> None:
        done = first
        for step in (_VECTORS * lanes, 1):
            width = min(step, lanes)

            def copy(i: Index, _: object, step: int = step, width: int = width) -> None:
                for number in range(step // width):
                    at = f.iadd(i, number * width)
                    if original.value >= 0:
                        value = f.load_vector(f.at(f.pointer(original.value), at, kind), kind, width)
                    else:
                        number_ = constant(original.dtype, original.number or 0, width)
                        value = to_storage(f, number_, original.dtype)
                    f.store_vector(value, f.at(f.pointer(result), at, kind), kind)

            until = f.iadd(done, f.imul(f.idiv(f.isub(end, done), step), step))
            f.loop(done, until, step, copy)
            done = until

    division.loop(f, row)
    f.finish()
    return division.tasks


def _scatter(f: Frame, whole: Whole) -> None:
    """Apply the updates one after the other, each element by element."""
    updates, indices = whole.inputs
    number = len(f.kernel.values) - 1
    result = f.kernel.values[number]
    sizes = whole.window
    inside = f.extent(product(updates.shape[1:]))
    depth = f.extent(Extent.of(indices.shape[-1]))
    strides = [f.extent(stride) for stride in memory_strides(result)]
    kind = storage_type(result.dtype)

    def given(operand: ExtOperand, at: Index) -> Value:
        if operand.value < 0:
            return constant(operand.dtype, operand.number or 0)
        item = storage_type(operand.dtype)
        return from_storage(f, f.load_vector(f.at(f.pointer(operand.value), at, item), item, 1), operand.dtype)

    def update(u: Index, _: object) -> None:
        place: Index = 0
        there: Value = None
        for position, axis in enumerate(whole.dimensions):
            index = resize(f, given(indices, f.iadd(f.imul(u, depth), position)), I64, signed=True)
            extent = f.extent(Extent.of(result.shape[axis]))
            size = f.extent(Extent.of(sizes.get(axis, 1)))
            behind = f.add(index, f.index(extent))
            index = f.select(f.icmp_signed("<", index, f.index(0)), behind, index)
            last = f.isub(extent, size)
            inner = f.and_(f.icmp_signed(">=", index, f.index(0)), f.icmp_signed("<=", index, f.index(last)))
            if whole.checks:
                _tell(f, inner, index, extent)
            there = inner if there is None else f.and_(there, inner)
            place = f.iadd(place, f.imul(index, strides[axis]))
        count = inside if there is None else f.select(there, f.index(inside), f.index(0))
        f.loop(0, count, 1, lambda w, _: element(u, w, place))

    def element(u: Index, w: Index, place: Index) -> None:
        at, rest = place, w
        for axis, size in reversed(sizes.items()):
            extent = f.extent(Extent.of(size))
            at = f.iadd(at, f.imul(f.irem(rest, extent), strides[axis]))
            rest = f.idiv(rest, extent)
        target = f.at(f.pointer(number), at, kind)
        old = from_storage(f, f.load_vector(target, kind, 1), result.dtype)
        values = [given(updates, f.iadd(f.imul(u, inside), w)), old]
        yielded = evaluate(f, whole.body, 2, dict(enumerate(values)), None)[whole.yields[0]]
        f.store_vector(to_storage(f, yielded, result.dtype), target, kind)

    f.loop(f.arguments[2], f.imul(f.arguments[3], f.extent(product(updates.shape[:1]))), 1, update)
    f.finish()


def _tell(f: Frame, inside: Value, index: Value, extent: Index) -> None:
    """Record an index out of bounds, with its extent, in the status, unless an error is recorded already."""
    status = f.status()
    first = f.icmp_signed("==", f.load(status, typ=I64, align=8), f.index(0))
    with f.if_then(f.and_(f.not_(inside), first), likely=False):
        for word, value in enumerate((f.index(1), index, f.index(extent))):
            f.store(value, f.at(status, word, I64), align=8)
