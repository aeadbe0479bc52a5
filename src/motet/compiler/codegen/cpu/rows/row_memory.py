"""What rows bring from memory and leave there: results past the caches, the next row asked for ahead, whole lines."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.cpu.emit.addressing import STREAM, Frame, Nest, result_bytes
from motet.compiler.codegen.cpu.emit.builder import I64, Index
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.codegen.cpu.gemm.microkernel import LINE
from motet.compiler.codegen.cpu.rows.grouping import RowGroup
from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.strides import ONE, ZERO, StridedAccess

_AHEAD = 256 << 10  # bytes of a row that is asked for ahead at most
_FAR = 1 << 20  # bytes from which on a value is not taken to lie in a cache already
_BUSY = 8  # operations for each element from which on a pass takes longer than memory
_LONG = 64  # vectors of a row that is worth beginning with a whole one


def streamed_results(kernel: Kernel, found: RowGroup, lanes: int) -> dict[int, list[StridedAccess]]:
    """By pass, the results that may be written past the caches: large, or of unknown size, read by nobody, and
    written in whole vectors by a pass without reductions."""
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
    """By pass, what it asks for of the next row: the pass that first reads a value waits for memory, so another
    one, the slowest, brings it."""
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
    """How many elements of each row lie before the first whole vector in memory, by the first of `far`, large inputs
    whose rows begin alike; scratch is moved to begin as they do. A vector across two lines is read twice. 0 where
    the passes take no longer than memory, or rows are too short to gain by it."""
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


def _work(nest: Nest) -> int:
    """Operations for each element of a row of a wide nest, elementary functions counted as eight."""
    inputs = len(nest.inputs) + len(nest.outputs)
    moving = {k for k, operand in enumerate(nest.inputs) if operand.strides[-1] != ZERO}
    moving.update(range(len(nest.inputs), inputs))
    total = 0
    for position, scalar in enumerate(nest.body, start=inputs):
        if scalar.op == "linalg.index" or moving.intersection(scalar.operands):
            moving.add(position)
            total += 8 if scalar.op.startswith("math.") else 1
    return total
