"""Memory accesses of rows: results written past the caches, prefetching of the next row, and alignment to cache
lines."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.cpu.emit.addressing import STREAM, Frame, StridedNest, result_bytes
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.gemm.microkernel import LINE
from motet.compiler.codegen.cpu.rows.grouping import RowGroup
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, StridedAccess

_AHEAD = 256 << 10  # bytes of a row that are prefetched at most
_FAR = 1 << 20  # bytes from which on a value is assumed not to be cached
_BUSY = 8  # operations per element from which on a pass takes longer than memory
_LONG = 64  # vectors of a row from which on aligning its vectors pays


def streamed_results(kernel: Kernel, found: RowGroup, lanes: int) -> dict[int, list[StridedAccess]]:
    """By pass, the results that may be written past the caches: large or of unknown size, not read again, and written
    in whole vectors by a pass without reductions. None for rows of several segments."""
    if found.inner > 1:
        return {}
    hosts = {place.value for place in found.places.values()}
    read = {access.value for stage in kernel.stages for access in stage.inputs} | hosts
    result: dict[int, list[StridedAccess]] = {}
    for number, members in enumerate(found.passes):
        nests = [found.nests[s] for s in members]
        if any(nest.kinds[-1:] != ("parallel",) for nest in nests) or not found.wide[members[0]]:
            continue
        written = [operand for nest in nests for operand in nest.outputs if operand.value not in found.private]
        sizes = [result_bytes(kernel, operand.value).known for operand in written]
        if written and all(
            operand.value not in read
            and (size is None or size >= STREAM)
            and item_bytes(operand.dtype) * lanes >= 16
            for operand, size in zip(written, sizes, strict=True)
        ):
            result[number] = written
    return result


def asked_ahead(kernel: Kernel, found: RowGroup) -> dict[int, list[StridedAccess]]:
    """By pass, the accesses that it prefetches for the next row. The pass that first reads a value waits for memory, so
    that the slowest other pass prefetches it. None for rows of several segments."""
    if found.inner > 1:
        return {}
    wide = [number for number, members in enumerate(found.passes) if found.wide[members[0]]]
    cost = {n: sum(_work(found.nests[s]) for s in found.passes[n]) for n in wide}
    result: dict[int, list[StridedAccess]] = {}
    seen: set[int] = set()
    for number in wide:
        for operand in (operand for s in found.passes[number] for operand in found.nests[s].inputs):
            if operand.value in seen or operand.value in found.private:
                continue
            seen.add(operand.value)
            length = found.nests[found.passes[number][0]].sizes[-1].known
            size = result_bytes(kernel, operand.value).known
            others = [n for n in wide if n != number]
            if (
                len(operand.strides) > 1
                and operand.strides[-1] == ONE
                and operand.strides[-2] != ZERO
                and length is not None
                and length * item_bytes(operand.dtype) <= _AHEAD
                and (size is None or size >= _FAR)
                and others
            ):
                result.setdefault(max(others, key=lambda n: cost[n]), []).append(operand)
    return result


def line_shift(f: Frame, found: RowGroup, lanes: int, far: Sequence[StridedAccess]) -> Index:
    """The number of elements of each row before the first aligned vector of the first of `far`, large inputs whose rows
    have equal alignment; scratch memory is shifted to have the same one. Unaligned vectors span two cache lines. 0 if
    the passes take no longer than memory, or rows are too short."""
    operand = next(iter(far), None)
    if operand is None or item_bytes(operand.dtype) * lanes != LINE:
        return 0
    wide = [members for members in found.passes if found.wide[members[0]]]
    busy = any(sum(_work(found.nests[s]) for s in members) >= _BUSY for members in wide)
    length = found.nests[found.wide.index(True)].sizes[-1].known
    if not busy or length is None or length < _LONG * lanes:
        return 0
    if any(stride.known is None or stride.known % lanes for stride in operand.strides[:-1]):
        return 0
    item = item_bytes(operand.dtype)
    address: Value = f.ptrtoint(f.address(operand, [0] * len(operand.strides)), I64)
    before = f.and_(f.udiv(address, f.index(item)), f.index(lanes - 1))
    for value in found.offsets:
        if item_bytes(f.kernel.values[value].dtype) == item:
            f.move(value, before)
    return f.and_(f.sub(f.index(lanes), before), f.index(lanes - 1))


def _work(nest: StridedNest) -> int:
    """Operations per element of a row of a wide nest; an elementary function counts as eight."""
    inputs = len(nest.inputs) + len(nest.outputs)
    moving = {k for k, operand in enumerate(nest.inputs) if operand.strides[-1] != ZERO}
    moving.update(range(len(nest.inputs), inputs))
    total = 0
    for position, scalar in enumerate(nest.body, start=inputs):
        if scalar.op == "linalg.index" or moving.intersection(scalar.operands):
            moving.add(position)
            total += 8 if scalar.op.startswith("math.") else 1
    return total
