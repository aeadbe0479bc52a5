"""Scans the lanes of a vector, in as many steps as the number of lanes has bits.

    a b c d  →  a a+b b+c c+d  →  a a+b a+b+c a+b+c+d

Source: W. D. Hillis, G. L. Steele, "Data parallel algorithms", 1986. Operations are associated differently from a loop
over the elements: sums of floats are rounded less often.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import I32
from motet.compiler.codegen.cpu.emit.combiners import combine
from motet.compiler.codegen.cpu.emit.compute_types import constant, widen
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.reduction import Reduction
from motet.compiler.kernels.strides import Extent
from motet.compiler.targets.cpu import CpuTarget

_FEWEST = 4  # lanes from which on vectors are faster than single elements
_SHORTEST = 8  # elements of a line from which on they are


def lanes_along(each: Reduction, length: Extent, target: CpuTarget) -> int:
    """The lanes of the vectors of a contiguous line; 1 if single elements are faster."""
    if each.accumulator == "i1" or (each.op == "arith.muli" and item_bytes(each.accumulator) == 8):
        return 1
    lanes = target.lanes(max(32, 8 * item_bytes(each.accumulator)))
    if length.known is not None:
        lanes = min(lanes, 1 << max(0, length.known - 1).bit_length())
    return 1 if lanes < _FEWEST or (length.known or _SHORTEST) < _SHORTEST else lanes


def scanned(f: Frame, each: Reduction, terms: Value) -> Value:
    """For each lane, the reduction of all lanes up to it."""
    lanes = terms.type.count
    neutral = widen(f, constant(each.accumulator, each.identity, 1), lanes)
    distance = 1
    while distance < lanes:
        order = [lanes + lane - distance if lane >= distance else lane for lane in range(lanes)]
        terms = combine(f, each, _picked(f, neutral, terms, order), terms)
        distance *= 2
    return terms


def moved_up(f: Frame, first: Value, values: Value) -> Value:
    """The lanes of `values` moved up by one; the lowest is that of `first`."""
    lanes = values.type.count
    return _picked(f, first, values, [0, *range(lanes, 2 * lanes - 1)])


def last_lane(f: Frame, values: Value) -> Value:
    """The last lane in all lanes."""
    lanes = values.type.count
    return _picked(f, values, values, [lanes - 1] * lanes)


def _picked(f: Frame, a: Value, b: Value, order: Sequence[int]) -> Value:
    return f.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(order)), list(order)))
