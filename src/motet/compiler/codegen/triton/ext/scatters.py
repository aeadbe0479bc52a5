"""Scatters: updates written to, or combined with, elements of a tensor at computed indices.

The tensor is copied first. Updates are combined by atomic operations where these exist, in unspecified order. If plain
writes address the same element, any of them may be last. Other updates are applied by one program, one after the other.
Negative indices count from the end. Updates out of bounds are omitted, and one of them is reported.
"""

from __future__ import annotations

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import constant, expression, from_storage, storage_type, to_storage
from motet.compiler.codegen.triton.text.writer import tell
from motet.compiler.kernels.kernel import Access, Stage
from motet.compiler.kernels.linalg_ext import ExtOperand, Whole, product
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.strides import Extent, memory_strides
from motet.compiler.targets.gpu import GpuTarget

_POINTS = 1024
_ATOMIC = {
    "addf": ("add", ("f16", "f32", "f64")), "addi": ("add", ("i32", "i64")), "maxsi": ("max", ("i32", "i64")),
    "minsi": ("min", ("i32", "i64")),
}


def emit(whole: Whole, target: GpuTarget) -> TritonCode:
    """Raises `UnsupportedOnGpu` if an operand is neither a tensor nor a splat."""
    known = all(operand.value >= 0 or operand.number is not None for operand in whole.inputs)
    if not known or whole.results != (0,):
        raise UnsupportedOnGpu("a scatter of this form")
    return code_of(whole, [_copied(whole), _scattered(whole)])


def _copied(whole: Whole) -> LaunchText:
    """Copy the input tensor to the result, which the second launch updates."""
    original = whole.outputs[0]
    target = len(whole.kernel.values) - 1
    count = product(whole.kernel.values[target].shape)
    lines = [
        f"i = {program_number(whole.kernel)} * {_POINTS} + tl.arange(0, {_POINTS})", f"exists = i < {text_of(count)}",
    ]
    value = f"tl.full(({_POINTS},), 0, {storage_type(original.dtype)})"
    if original.value >= 0:
        value = f"tl.load(v{original.value} + i, mask=exists)"
    elif original.number is not None:
        number = constant(original.number, original.dtype)
        value = to_storage(f"tl.broadcast_to({number}, ({_POINTS},))", original.dtype)
    return LaunchText([*lines, f"tl.store(v{target} + i, {value}, mask=exists)"], grid(count, _POINTS), 4)


def _scattered(whole: Whole) -> LaunchText:
    """Apply the updates in parallel, point by point."""
    updates, indices = whole.inputs
    target = len(whole.kernel.values) - 1
    result = whole.kernel.values[target]
    count, inside = product(updates.shape), product(updates.shape[1:])
    depth = text_of(Extent.of(indices.shape[-1]))
    strides = memory_strides(result)
    parallel = _way(whole)
    lines = ["u = i // " + text_of(inside), "w = i % " + text_of(inside), "ok = exists", "place = i * 0"]
    for position, axis in enumerate(whole.dimensions):
        extent, size = text_of(Extent.of(result.shape[axis])), text_of(Extent.of(whole.window.get(axis, 1)))
        lines += [
            f"n = {_given(indices, f'u * {depth} + {position}', ', other=0')}",
            f"n = tl.where(n < 0, n + {extent}, n)",
            f"inside = (n >= 0) & (n <= {extent} - {size})",
            *(tell(f"v{len(whole.kernel.values)}", 1, "n", extent, "(exists & ~inside)") if whole.checks else ()),
            "ok = ok & inside",
            f"place = place + n.to(place.dtype) * {text_of(strides[axis])}",
        ]
    for axis, size in reversed(whole.window.items()):
        extent = text_of(Extent.of(size))
        lines += [f"place = place + (w % {extent}) * {text_of(strides[axis])}", f"w = w // {extent}"]
    lines.append(f"x = {_given(updates, 'i')}")
    number = program_number(whole.kernel)
    if parallel is None:
        return _in_order(whole, lines, count, number)
    lines = [f"i = {number} * {_POINTS} + tl.arange(0, {_POINTS})", f"exists = i < {text_of(count)}", *lines]
    if parallel == "store":
        lines.append(f"tl.store(v{target} + place, x, mask=ok)")
    else:
        lines.append(f"tl.atomic_{parallel}(v{target} + place, x, mask=ok, sem='relaxed')")
    return LaunchText(lines, grid(count, _POINTS), 4)


def _given(operand: ExtOperand, place: str, otherwise: str = "") -> str:
    """The element of an operand at `place`, as stored."""
    if operand.value >= 0:
        return f"tl.load(v{operand.value} + ({place}), mask=exists{otherwise})"
    return to_storage(f"tl.broadcast_to({constant(operand.number or 0, operand.dtype)}, i.shape)", operand.dtype)


def _in_order(whole: Whole, lines: list[str], count: Extent, number: str) -> LaunchText:
    """Apply the updates in order, in one program."""
    target = len(whole.kernel.values) - 1
    dtype = whole.outputs[0].dtype
    names = ["a", "b"]
    kinds = [dtype, dtype]
    body: list[str] = []
    for scalar in whole.body:
        kinds.append(scalar.dtype)
        names.append(f"y{len(names)}")
        text = expression(scalar, [names[o] for o in scalar.operands], [kinds[o] for o in scalar.operands])
        body.append(f"{names[-1]} = {text}")
    return LaunchText([
        f"for k in range(0, {text_of(count)}):",
        *(f"    {line}" for line in [
            f"i = {number} + k + tl.arange(0, 1)", "exists = i >= 0", *lines,
            f"a = {from_storage('x', dtype)}", f"old = tl.load(v{target} + place, mask=ok)",
            f"b = {from_storage('old', dtype)}", *body,
            f"tl.store(v{target} + place, {to_storage(f'({names[whole.yields[0]]})', dtype)}, mask=ok)",
            "tl.debug_barrier()",
        ]),
    ], 1, 1)


def _way(whole: Whole) -> str | None:
    """`store` if updates replace, the atomic operation if one combines them; else None."""
    if whole.yields == (0,):
        return "store"
    stage = Stage(("n",), ("reduction",), (Access(0, ()),), (Access(1, ()),), (None,), whole.body, whole.yields)
    found = match_reductions(stage)
    if found is None or found[0].term != 0:
        return None
    name, dtypes = _ATOMIC.get(found[0].op.partition(".")[2], ("", ()))
    return name if whole.outputs[0].dtype in dtypes else None
