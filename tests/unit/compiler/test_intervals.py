"""Every value that an expression of a loop's counter takes is in its interval; indices in range are not checked."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.generic_calls import emit

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.intervals import Intervals

COMPARISONS = {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal, "ult": None}


def expression(choice: random.Random, counts: np.ndarray) -> tuple[str, dict[str, np.ndarray]]:
    """Operations on the counter %k as i64, and the numbers that each has in the iterations."""
    values: dict[str, np.ndarray] = {"%i": counts}
    lines = ["%i = arith.index_cast %k : index to i64"]
    bits: dict[str, np.ndarray] = {}
    for number in range(12):
        name, (a, b) = f"%v{number}", choice.choices(list(values), k=2)
        kind = choice.choice(("constant", "addi", "subi", "maxsi", "minsi", "cmpi", "select", "extui", "extsi"))
        if kind == "constant":
            values[name] = np.full_like(counts, choice.randint(-9, 9))
            lines.append(f"{name} = arith.constant {values[name][0]} : i64")
        elif kind == "cmpi":
            predicate = choice.choice(list(COMPARISONS))
            compare = COMPARISONS[predicate]
            left, right = values[a], values[b]
            bits[name] = left.view(np.uint64) < right.view(np.uint64) if compare is None else compare(left, right)
            lines.append(f"{name} = arith.cmpi {predicate}, {a}, {b} : i64")
        elif kind in ("select", "extui", "extsi"):
            if not bits:
                continue
            bit = choice.choice(list(bits))
            if kind == "select":
                values[name] = np.where(bits[bit], values[a], values[b])
                lines.append(f"{name} = arith.select {bit}, {a}, {b} : i64")
            else:
                values[name] = bits[bit].astype(np.int64) * (1 if kind == "extui" else -1)
                lines.append(f"{name} = arith.{kind} {bit} : i1 to i64")
        else:
            compute = {"addi": np.add, "subi": np.subtract, "maxsi": np.maximum, "minsi": np.minimum}[kind]
            values[name] = compute(values[a], values[b])
            lines.append(f"{name} = arith.{kind} {a}, {b} : i64")
    return "\n".join(lines), values


@pytest.mark.parametrize("seed", range(60))
def test_an_interval_has_every_number(seed: int) -> None:
    choice = random.Random(seed)
    first, count = choice.randint(0, 5), choice.randint(1, 9)
    lines, values = expression(choice, np.arange(first, first + count, dtype=np.int64))
    names = [name for name in values if name != "%i"]
    source = f"""func.func @main() {{
      %b = arith.constant {first} : index
      %e = arith.constant {first + count} : index
      %s = arith.constant 1 : index
      scf.for %k = %b to %e step %s {{
        {lines}
        {"".join(f'"test.use"({name}) {{name = "{name}"}} : (i64) -> (){chr(10)}' for name in names)}
      }}
      return
    }}"""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        module = ir.Module.parse(source)
        intervals = Intervals()
        for use in find_operations(module, "test.use"):
            numbers = values[ir.StringAttr(use.attributes["name"]).value]
            low, high = intervals.of(use.operands[0])
            assert low is None or low <= numbers.min(), f"seed {seed}"
            assert high is None or high >= numbers.max(), f"seed {seed}"


ROW = """func.func @main(%x: tensor<7x5xf32>) -> tensor<5xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant END : index
  %zero = arith.constant dense<0.0> : tensor<5xf32>
  %none = arith.constant 0 : i64
  %n = arith.constant 7 : i64
  %r = scf.for %k = %c0 to %end step %c1 iter_args(%sum = %zero) -> tensor<5xf32> {
    %i = arith.index_cast %k : index to i64
    %negative = arith.cmpi slt, %i, %none : i64
    %bit = arith.extui %negative : i1 to i64
    %back = arith.muli %bit, %n : i64
    %wrapped = arith.addi %i, %back : i64
    %at = arith.index_cast %wrapped : i64 to index
    %row = tensor.extract_slice %x[%at, 0] [1, 5] [1, 1] : tensor<7x5xf32> to tensor<5xf32>
    %e = tensor.empty() : tensor<5xf32>
    %next = linalg.add ins(%sum, %row : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) -> tensor<5xf32>
    scf.yield %next : tensor<5xf32>
  }
  return %r : tensor<5xf32>
}"""


@pytest.mark.parametrize(("end", "checked"), [(7, False), (3, False), (8, True)])
def test_only_slices_that_may_leave_the_tensor_are_checked(end: int, checked: bool) -> None:
    checks = emit(re.sub("END", str(end), ROW)).code.checks
    assert bool(checks) == checked
