"""Reductions whose order does not matter: how partial results are combined, and what they begin with."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.codegen.cpu.combiners import combiner
from motet.compiler.codegen.triton.scalars import (
    BOOLEAN,
    SHORT_FLOATS,
    carried_type,
    extreme,
    number,
    rounded,
    unsigned,
)
from motet.compiler.kernels.kernel import Stage

_SIGNS = {"addf": "+", "mulf": "*", "addi": "+", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}


@dataclass(frozen=True)
class Combiner:
    """`running = op(running, term)`: `term` is the body value, `last` the number of the combining operation's
    result. Sums of short floats are kept in f32."""

    op: str
    term: int
    last: int
    dtype: str
    identity: float | int

    @property
    def accumulator(self) -> str:
        return "f32" if self.dtype in SHORT_FLOATS else self.dtype

    @property
    def begin(self) -> str:
        """The number to begin with, as a literal."""
        return number(self.identity, self.dtype)

    def where(self, mask: str, x: str) -> str:
        """`x`, carried, with the number to begin with in points outside `mask`."""
        chosen = f"tl.where({mask}, {x}, {self.begin})"
        return f"{chosen}.to({carried_type(self.dtype)})" if self.dtype == "i1" else chosen

    def combine(self, x: str, y: str) -> str:
        """Two partial results, carried."""
        name = self.op.partition(".")[2]
        kind = carried_type(self.accumulator)
        if self.dtype == "i1":
            name = BOOLEAN.get(name, name)
        if name in _SIGNS:
            return f"({x} {_SIGNS[name]} {y}).to({kind})"
        if name.endswith("f"):
            return extreme(name, x, y)
        function = "tl.maximum" if name.startswith("max") else "tl.minimum"
        if name.endswith("ui"):
            return f"{function}({unsigned(x, self.dtype)}, {unsigned(y, self.dtype)}).to({kind}, bitcast=True)"
        return f"{function}({x}, {y})"

    def narrowed(self, total: str) -> str:
        """The accumulated result, as its dtype is carried."""
        return rounded(total, self.dtype)

    @property
    def helper(self) -> tuple[str, str]:
        """The name and the text of a function of two partial results, for `tl.reduce`."""
        name = f"combine_{self.op.partition('.')[2]}_{self.accumulator}"
        return name, f"def {name}(x, y):\n    return {self.combine('x', 'y')}"


def combiners(stage: Stage) -> list[Combiner] | None:
    """How every output of `stage` gathers its reduction; None where the order matters for one."""
    found: list[Combiner] = []
    for k in range(len(stage.outputs)):
        one = combiner(stage, k)
        if one is None:
            return None
        found.append(Combiner(one.op, one.term, stage.yields[k], one.dtype, one.identity))
    return found
