"""How reductions gather terms: the operation, where it starts, and lanes combined across a vector."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.body import dependencies
from motet.compiler.codegen.cpu.builder import F16, F32, I32, Builder
from motet.compiler.codegen.cpu.carried import is_float, round_bf16, widen
from motet.compiler.codegen.cpu.operations import ARITHMETIC
from motet.compiler.codegen.cpu.vector_math import Value, same_lanes
from motet.compiler.kernels.kernel import ITEM_BITS, Stage

_INFINITY = float("inf")
_FLOAT_IDENTITY: dict[str, float] = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -_INFINITY,
    "arith.minimumf": _INFINITY,
    "arith.maxnumf": -_INFINITY,
    "arith.minnumf": _INFINITY,
}


@dataclass(frozen=True)
class Combiner:
    """How a stage's output gathers its reduction: `running = op(running, term)`, with `op` associative and
    commutative up to rounding, and `term`, a body value, not depending on any running value."""

    op: str
    term: int
    dtype: str

    @property
    def accumulator(self) -> str:
        """The dtype in which partial results are kept: sums of narrow floats in f32, as rounding at each
        step would make long ones meaningless."""
        return "f32" if self.dtype in ("f16", "bf16") else self.dtype

    @property
    def identity(self) -> float | int:
        if is_float(self.dtype):
            return _FLOAT_IDENTITY[self.op]
        bits = 1 if self.dtype == "i1" else ITEM_BITS[self.dtype]
        least = -(1 << (bits - 1))
        return {
            "arith.addi": 0,
            "arith.ori": 0,
            "arith.xori": 0,
            "arith.maxui": 0,
            "arith.muli": 1,
            "arith.andi": -1,
            "arith.minui": -1,
            "arith.maxsi": least,
            "arith.minsi": -1 - least,
        }[self.op]

    def combine(self, b: Builder, x: Value, y: Value) -> Value:
        """Two partial results of dtype `accumulator`, scalars or vectors."""
        lanes = max((v.type.count for v in (x, y) if isinstance(v.type, ir.VectorType)), default=1)
        return ARITHMETIC[self.op.partition(".")[2]](b, widen(b, x, lanes), widen(b, y, lanes))

    def widened(self, b: Builder, term: Value) -> Value:
        """A term of the body, as the accumulator's dtype."""
        return b.fpext(term, same_lanes(term.type, F32)) if self.dtype == "f16" else term

    def narrowed(self, b: Builder, total: Value) -> Value:
        """The accumulated result, as the output's dtype is carried."""
        if self.dtype == "f16":
            return b.fptrunc(total, same_lanes(total.type, F16))
        return round_bf16(b, total) if self.dtype == "bf16" else total

    def across(self, b: Builder, vector: Value) -> Value:
        """The lanes of a vector (a power of two of them), combined into one scalar."""
        while isinstance(vector.type, ir.VectorType):
            half = vector.type.count // 2
            if half == 1:
                low, high = (b.extract_element(vector, ir.Constant(I32, lane)) for lane in (0, 1))
                return self.combine(b, low, high)
            undefined = ir.Constant(vector.type, ir.Undefined)
            pick = ir.VectorType(I32, half)
            low = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half))))
            high = b.shuffle_vector(vector, undefined, ir.Constant(pick, list(range(half, 2 * half))))
            vector = self.combine(b, low, high)
        return vector


_INTEGER_COMBINERS = ("addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori")
_COMBINERS = {*_FLOAT_IDENTITY, *(f"arith.{name}" for name in _INTEGER_COMBINERS)}


def combiner(stage: Stage, output: int) -> Combiner | None:
    """How `stage` reduces into `outputs[output]`, or None where its order matters or is not understood."""
    inputs = len(stage.inputs) + len(stage.outputs)
    running = range(len(stage.inputs), inputs)
    position = stage.yields[output] - inputs
    if position < 0:
        return None
    last = stage.body[position]
    own = len(stage.inputs) + output
    users = [scalar for scalar in stage.body if own in scalar.operands]
    if last.op not in _COMBINERS or len(last.operands) != 2 or len(users) != 1 or users[0] is not last:
        return None
    if list(last.operands).count(own) != 1 or list(stage.yields).count(stage.yields[output]) != 1:
        return None
    term = last.operands[0] if last.operands[1] == own else last.operands[1]
    if any(value in running for value in dependencies(stage.body, inputs, [term])):
        return None
    return Combiner(last.op, term, last.dtype)
