"""Reads order-independent reductions: the operation that combines terms, and its initial value.

    v1[i] max= exp(v0[i, j])    →    Reduction(op="arith.maximumf", term=the body's exp, begins with -inf)

Back ends emit the operation, for registers, vectors and tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.kernels.kernel import ITEM_BITS, Stage, dependencies

_INFINITY = float("inf")
_FLOAT_IDENTITY: dict[str, float] = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -_INFINITY,
    "arith.minimumf": _INFINITY,
    "arith.maxnumf": -_INFINITY,
    "arith.minnumf": _INFINITY,
}
_INTEGERS = ("addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori")
_OPERATIONS = {*_FLOAT_IDENTITY, *(f"arith.{name}" for name in _INTEGERS)}


@dataclass(frozen=True)
class Reduction:
    """How a stage's output reduces: `running = op(running, term)`, with `op` associative and commutative up to
    rounding, and `term`, a body value that depends on no accumulator. `last` is the body value computed by `op`."""

    op: str
    term: int
    last: int
    dtype: str

    @property
    def accumulator(self) -> str:
        """The dtype of partial results: f32 for sums of 16-bit floats, since rounding at each step would make long sums
        meaningless."""
        return "f32" if self.dtype in ("f16", "bf16", "f8E4M3FN", "f8E5M2") else self.dtype

    @property
    def identity(self) -> float | int:
        """The partial result of no terms."""
        if self.op in _FLOAT_IDENTITY:
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


def match_reduction(stage: Stage, output: int) -> Reduction | None:
    """How `stage` reduces into `outputs[output]`; None if its order matters or the operation is not recognised."""
    inputs = len(stage.inputs) + len(stage.outputs)
    running = range(len(stage.inputs), inputs)
    position = stage.yields[output] - inputs
    if position < 0:
        return None
    last = stage.body[position]
    own = len(stage.inputs) + output
    users = [scalar for scalar in stage.body if own in scalar.operands]
    if last.op not in _OPERATIONS or len(last.operands) != 2 or len(users) != 1 or users[0] is not last:
        return None
    if list(last.operands).count(own) != 1 or list(stage.yields).count(stage.yields[output]) != 1:
        return None
    term = last.operands[0] if last.operands[1] == own else last.operands[1]
    if any(value in running for value in dependencies(stage.body, inputs, [term])):
        return None
    return Reduction(last.op, term, stage.yields[output], last.dtype)


def match_reductions(stage: Stage) -> list[Reduction] | None:
    """How every output of `stage` reduces; None if the order matters for one."""
    found = [match_reduction(stage, output) for output in range(len(stage.outputs))]
    complete = [each for each in found if each is not None]
    return complete if len(complete) == len(found) else None
