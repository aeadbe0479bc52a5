"""Sorts without 32-bit keys in `sorts.py`: keys of 64 bits or unsigned ones, and lines of unknown length.

Every element computes its rank, the number of elements of its line that come before it, by comparison with all of them,
and is stored there. Equal elements keep their order, and NaNs are larger than all other values. This takes quadratic
time and no workspace: about 67 million comparisons for a line of 8192 elements, shared by many programs.
"""

from __future__ import annotations

from motet.compiler.codegen.triton.ext.whole_operations import LaunchText, code_of, grid, program_number, text_of
from motet.compiler.codegen.triton.text.program import TritonCode
from motet.compiler.codegen.triton.text.scalars import from_storage, storage_type, unsigned
from motet.compiler.kernels.kernel import FLOATS
from motet.compiler.kernels.linalg_ext import Line, Order, Whole

_PLACED = 64  # elements whose ranks one program computes
_COMPARED = 64  # elements that they are compared with at a time


def emit(whole: Whole, line: Line, order: Order) -> TritonCode:
    """Generate code for any sort by one comparison of its first tensor's elements."""
    length, inner = text_of(line.length), text_of(line.inner)
    key = whole.outputs[0]
    dtype = key.dtype
    lines = [
        f"p = {program_number(whole.kernel)}", f"blocks = tl.cdiv({length}, {_PLACED})", "r = p // blocks",
        f"first = (r // {inner}) * {length} * {inner} + r % {inner}",
        f"i = (p % blocks) * {_PLACED} + tl.arange(0, {_PLACED})[:, None]",
        *_key("a", "i", key.value, dtype, order, length, inner),
        f"rank = tl.zeros(({_PLACED}, {_COMPARED}), tl.int32)",
        f"for start in range(0, {length}, {_COMPARED}):",
        f"    j = start + tl.arange(0, {_COMPARED})[None, :]",
        *(f"    {text}" for text in _key("b", "j", key.value, dtype, order, length, inner)),
        *(f"    {text}" for text in _before(dtype, order)),
        f"    rank += ((j < {length}) & (before | (equal & (j < i)))).to(tl.int32)",
        "rank = tl.sum(rank, 1, keep_dims=True)",
    ]
    for number, (result, wanted) in enumerate(zip(whole.results, whole.firsts, strict=True)):
        operand = whole.outputs[result]
        target = len(whole.kernel.values) - len(whole.results) + number
        count = length if wanted is None else str(wanted)
        mask = f"(i < {length})" + ("" if wanted is None else f" & (rank < {count})")
        taken = f"tl.load(v{operand.value} + (first + i * {inner}), mask={mask}, other=0)"
        lines.append(f"y = {taken if operand.value >= 0 else f'i.to({storage_type(operand.dtype)})'}")
        place = f"(r // {inner}) * {count} * {inner} + rank * {inner} + r % {inner}"
        lines.append(f"tl.store(v{target} + ({place}), y, mask={mask})")
    return code_of(whole, [LaunchText(lines, grid(line.length, _PLACED, line.count), 4)])


def _key(name: str, i: str, value: int, dtype: str, order: Order, length: str, inner: str) -> list[str]:
    """Load element `i` of the line as it is compared."""
    loaded = from_storage(f"tl.load(v{value} + (first + {i} * {inner}), mask={i} < {length}, other=0)", dtype)
    lines = [f"{name} = {loaded}"]
    if dtype == "i1":
        lines.append(f"{name} = {name}.to(tl.int8)")
    elif order.unsigned or dtype.startswith("ui"):
        lines.append(f"{name} = {unsigned(name, dtype)}")
    return lines


def _before(dtype: str, order: Order) -> list[str]:
    """Whether element `b` comes before `a`, and whether they are equal."""
    sign = ">" if order.descending else "<"
    if dtype not in FLOATS:
        return [f"before = b {sign} a", "equal = b == a"]
    late, early = ("a", "b") if not order.descending else ("b", "a")
    nan = f"(({late} != {late}) & ({early} == {early}))"
    return [f"before = (b {sign} a) | {nan}", "equal = (b == a) | ((a != a) & (b != b))"]
