"""Sequential reductions whose accumulators few points change, such as argmax.

    best, place = max(x[j], best), select(x[j] > best, j, place)

Points are processed in order, but in blocks: if no point of a block would change an accumulator as it is before the
block, then none changes it, by induction, and the block is skipped. Whether a point would is computed in vectors. Other
blocks are processed point by point. A random row of n points has about log n of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame, StridedNest
from motet.compiler.codegen.cpu.emit.float_lanes import Value, same_lanes, scalar_type
from motet.compiler.kernels.kernel import Scalar, dependencies

_EXTREMES = ("maximumf", "minimumf", "maxnumf", "minnumf", "maxsi", "minsi", "maxui", "minui")
VECTORS = 8  # of a block


def may_skip(nest: StridedNest) -> bool:
    """Whether every accumulator is selected, or an extreme, of its old value and another: it often stays as it is."""
    selected = [_of_own(nest, output) for output in range(len(nest.outputs))]
    return all(each is not None for each in selected) and any(
        each.op == "arith.select" for each in selected if each is not None
    )


def wanted(nest: StridedNest) -> list[int]:
    """The body values that `changed` reads."""
    found: list[int] = []
    for output in range(len(nest.outputs)):
        scalar = _of_own(nest, output)
        assert scalar is not None, "may_skip is false"
        found.append(scalar.operands[0] if scalar.op == "arith.select" else nest.stage.yields[output])
    return found


def changed(f: Frame, nest: StridedNest, values: dict[int, Value], lanes: int) -> Value:
    """For each of `lanes` points, whether it may change an accumulator: i1 values. `values` are those of the body."""
    result: Value = ir.Constant(ir.VectorType(ir.IntType(1), lanes), None)
    for output, position in enumerate(wanted(nest)):
        scalar = _of_own(nest, output)
        own = len(nest.inputs) + output
        if scalar is not None and scalar.op == "arith.select":
            taken = values[position]
            flag = f.not_(taken) if scalar.operands[1] == own else taken
        else:
            flag = _differ(f, values[position], values[own])
        result = f.or_(result, f.splat(flag, lanes) if not isinstance(flag.type, ir.VectorType) else flag)
    return result


def _of_own(nest: StridedNest, output: int) -> Scalar | None:
    """The operation that makes the new value of an accumulator, if it selects, or is an extreme of, the old value and
    one that does not depend on it except by a condition."""
    count = len(nest.inputs) + len(nest.outputs)
    position = nest.stage.yields[output] - count
    if position < 0:
        return None
    scalar, own = nest.body[position], len(nest.inputs) + output
    name = scalar.op.partition(".")[2]
    choices = scalar.operands[1:] if name == "select" else scalar.operands if name in _EXTREMES else ()
    if list(choices).count(own) != 1:
        return None
    other = next(each for each in choices if each != own)
    return None if own in dependencies(nest.body, count, [other]) else scalar


def _differ(f: Frame, new: Value, old: Value) -> Value:
    """Whether the bits of two numbers differ."""
    kind = scalar_type(new.type)
    if not isinstance(kind, ir.IntType):
        width = {ir.FloatType(): 32, ir.DoubleType(): 64}.get(kind, 16)
        new, old = (f.bitcast(each, same_lanes(each.type, ir.IntType(width))) for each in (new, old))
    if isinstance(new.type, ir.VectorType) and not isinstance(old.type, ir.VectorType):
        old = f.splat(old, new.type.count)
    return f.icmp_unsigned("!=", new, old)


def any_set(f: Frame, flags: Sequence[Value]) -> Value:
    """Whether a lane of one of several vectors of i1 is set."""
    parts = list(flags)
    while len(parts) > 1:
        parts = [f.or_(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    bits = ir.IntType(parts[0].type.count)
    return f.icmp_unsigned("!=", f.bitcast(parts[0], bits), ir.Constant(bits, 0))
