"""Scatters: updates written to, or combined with, elements of a tensor at computed indices.

The tensor is copied first. Updates are combined in unspecified order: by atomic operations where these exist, otherwise
by exchanging an element until no other update came between. If plain writes address the same element, any of them may
be last. Updates whose order matters are applied by one program, one after the other. Negative indices count from the
end. Updates out of bounds are omitted, and one of them is reported.

The largest and the smallest float are those of their bits: as integers with a sign floats without one are in order,
and as integers without one, floats with a sign are in reverse. NaN gets the bits that win.
"""

from __future__ import annotations

from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import constant, expression, from_storage, storage_type, to_storage
from motet.compiler.codegen.triton.text.writer import tell
from motet.compiler.kernels.kernel import ITEM_BITS, Access, Stage
from motet.compiler.kernels.linalg_ext import ExtOperand, Whole, product
from motet.compiler.kernels.reduction import match_reductions
from motet.compiler.kernels.strides import Extent, memory_strides
from motet.compiler.targets.gpu import GpuTarget

_POINTS = 1024
_ATOMIC = {
    "addf": ("add", ("f16", "f32", "f64")), "addi": ("add", ("i32", "i64")), "maxsi": ("max", ("i32", "i64")),
    "minsi": ("min", ("i32", "i64")), "maximumf": ("maximum", ("f32", "f64")), "minimumf": ("minimum", ("f32", "f64")),
}
# Of floats, the atomic operations on integers: for those without a sign, and for those with one.
_EXTREMES = {"maximum": ("max", "min"), "minimum": ("min", "max")}


def emit(whole: Whole, target: GpuTarget) -> TritonCode:
    """Raises `UnsupportedOnGpu` if an operand is neither a tensor nor a splat."""
    known = all(operand.value >= 0 or operand.number is not None for operand in whole.inputs)
    if not known or whole.results != (0,):
        raise UnsupportedOnGpu("a scatter of this form")
    way = _way(whole, target)
    return code_of(whole, [_copied(whole, way), _scattered(whole, way)])


def _copied(whole: Whole, way: str | None) -> LaunchText:
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
    lines.append(f"value = {value}")
    if way in _EXTREMES:
        nan = f"tl.full(value.shape, {_nan(way, original.dtype)}, {_integer(original.dtype)})"
        lines.append(f"value = tl.where(value != value, {nan}.to({storage_type(original.dtype)}, bitcast=True), value)")
    return LaunchText([*lines, f"tl.store(v{target} + i, value, mask=exists)"], grid(count, _POINTS), 4)


def _scattered(whole: Whole, way: str | None) -> LaunchText:
    """Apply the updates in parallel, point by point."""
    updates, indices = whole.inputs
    target = len(whole.kernel.values) - 1
    result = whole.kernel.values[target]
    count, inside = product(updates.shape), product(updates.shape[1:])
    depth = text_of(Extent.of(indices.shape[-1]))
    strides = memory_strides(result)
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
    if way is None:
        return _in_order(whole, lines, count, number)
    lines = [f"i = {number} * {_POINTS} + tl.arange(0, {_POINTS})", f"exists = i < {text_of(count)}", *lines]
    if way == "store":
        lines.append(f"tl.store(v{target} + place, x, mask=ok)")
    elif way == "exchange":
        lines += _exchanged(whole)
    elif way in _EXTREMES:
        lines += _extreme(whole, way)
    else:
        lines.append(f"tl.atomic_{way}(v{target} + place, x, mask=ok, sem='relaxed')")
    return LaunchText(lines, grid(count, _POINTS), 4)


def _extreme(whole: Whole, way: str) -> list[str]:
    """The largest or smallest float of the element and `x`."""
    dtype = whole.outputs[0].dtype
    signed, unsigned = _integer(dtype), _integer(dtype).replace("int", "uint")
    place = f"(v{len(whole.kernel.values) - 1} + place)"
    first, second = _EXTREMES[way]
    return [
        f"bits = tl.where(x != x, {_nan(way, dtype)}, x.to({signed}, bitcast=True))",
        f"tl.atomic_{first}({place}.to(tl.pointer_type({signed}), bitcast=True), bits, mask=ok & (bits >= 0), "
        "sem='relaxed')",
        f"tl.atomic_{second}({place}.to(tl.pointer_type({unsigned}), bitcast=True), "
        f"bits.to({unsigned}, bitcast=True), mask=ok & (bits < 0), sem='relaxed')",
    ]


def _nan(way: str, dtype: str) -> int:
    """The bits, as an integer with a sign, of the NaN that wins: it has the sign that wins."""
    bits = ITEM_BITS[dtype]
    fraction = {32: 22, 64: 51}[bits]
    quiet = (1 << (bits - 1)) - (1 << fraction)
    return quiet if way == "maximum" else quiet - (1 << (bits - 1))


def _exchanged(whole: Whole) -> list[str]:
    """Elements are exchanged, all at once, until each was what it had been when its new value was computed. Points
    that are done exchange an element for itself: the first one, which is there if any point is not done."""
    target = len(whole.kernel.values) - 1
    dtype = whole.outputs[0].dtype
    integer, storage = _integer(dtype), storage_type(dtype)
    body, result = _combined(whole)
    return [
        f"place = (v{target} + tl.where(ok, place, 0)).to(tl.pointer_type({integer}), bitcast=True)",
        "before = tl.load(place, mask=ok, other=0)",
        "while tl.max(ok.to(tl.int32)) > 0:",
        *(f"    {line}" for line in [
            f"a = {from_storage('x', dtype)}", f"old = before.to({storage}, bitcast=True)",
            f"b = {from_storage('old', dtype)}", *body,
            f"after = tl.where(ok, {to_storage(result, dtype)}.to({integer}, bitcast=True), before)",
            "found = tl.atomic_cas(place, before, after, sem='relaxed')",
            "ok = ok & (found != before)",
            "before = found",
        ]),
    ]


def _integer(dtype: str) -> str:
    return f"tl.int{ITEM_BITS[dtype]}"


def _given(operand: ExtOperand, place: str, otherwise: str = "") -> str:
    """The element of an operand at `place`, as stored."""
    if operand.value >= 0:
        return f"tl.load(v{operand.value} + ({place}), mask=exists{otherwise})"
    return to_storage(f"tl.broadcast_to({constant(operand.number or 0, operand.dtype)}, i.shape)", operand.dtype)


def _in_order(whole: Whole, lines: list[str], count: Extent, number: str) -> LaunchText:
    """Apply the updates in order, in one program."""
    target = len(whole.kernel.values) - 1
    dtype = whole.outputs[0].dtype
    body, result = _combined(whole)
    return LaunchText([
        f"for k in range(0, {text_of(count)}):",
        *(f"    {line}" for line in [
            f"i = {number} + k + tl.arange(0, 1)", "exists = i >= 0", *lines,
            f"a = {from_storage('x', dtype)}", f"old = tl.load(v{target} + place, mask=ok)",
            f"b = {from_storage('old', dtype)}", *body,
            f"tl.store(v{target} + place, {to_storage(result, dtype)}, mask=ok)",
            "tl.debug_barrier()",
        ]),
    ], 1, 1)


def _combined(whole: Whole) -> tuple[list[str], str]:
    """Lines that combine update `a` with element `b`, and the name of the result."""
    names, kinds = ["a", "b"], [whole.outputs[0].dtype] * 2
    body: list[str] = []
    for scalar in whole.body:
        kinds.append(scalar.dtype)
        names.append(f"y{len(names)}")
        text = expression(scalar, [names[o] for o in scalar.operands], [kinds[o] for o in scalar.operands])
        body.append(f"{names[-1]} = {text}")
    return body, f"({names[whole.yields[0]]})"


def _way(whole: Whole, target: GpuTarget) -> str | None:
    """`store` if updates replace; if their order does not matter, the atomic operation that combines them, or
    `exchange`; else None."""
    if whole.yields == (0,):
        return "store"
    stage = Stage(("n",), ("reduction",), (Access(0, ()),), (Access(1, ()),), (None,), whole.body, whole.yields)
    found = match_reductions(stage)
    if found is None or found[0].term != 0:
        return None
    dtype = whole.outputs[0].dtype
    name, dtypes = _ATOMIC.get(found[0].op.partition(".")[2], ("", ()))
    if dtype in dtypes:
        return name
    # Only NVIDIA's GPUs exchange 16 bits.
    return "exchange" if ITEM_BITS[dtype] in ((16, 32, 64) if target.family == "cuda" else (32, 64)) else None
