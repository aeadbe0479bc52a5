"""Divisions that a processor traps on, in code of upstream's loops: the process lives, and the others are right."""

from __future__ import annotations

import numpy as np
from tests.unit.compiler.building import X86_64_V3, run

OPERATIONS = {
    "arith.divsi": lambda x, y: int(x / y), "arith.remsi": lambda x, y: x - y * int(x / y),
    "arith.divui": lambda x, y: x // y, "arith.remui": lambda x, y: x % y,
    "arith.floordivsi": lambda x, y: x // y, "arith.ceildivsi": lambda x, y: -(-x // y),
}  # fmt: skip


def test_divisions_in_loops_never_end_the_process() -> None:
    """A loop over whole tensors, which no code generator but upstream's takes."""
    x = np.array([100, 7, 0, 9, 100, 5, -128, -128], np.int8)
    y = np.array([7, 2, 3, 0, 9, 1, 0, -1], np.int8)
    defined = y[:-1] != 0
    lines, results = [], []
    for number, name in enumerate(OPERATIONS):
        for element in ("i8", "i64"):
            at, kind = f"{number}_{element}", f"tensor<8x{element}>"
            lines.append(f"""%r{at} = scf.for %i{at} = %c0 to %n step %c1 iter_args(%a = %x_{element}) -> {kind} {{
              %q = {name} %a, %y_{element} : {kind}
              scf.yield %q : {kind}
            }}""")
            results.append((f"%r{at}", kind))
    kinds = ", ".join(kind for _, kind in results)
    text = f"""func.func @main(%x_i8: tensor<8xi8>, %y_i8: tensor<8xi8>, %x_i64: tensor<8xi64>, %y_i64: tensor<8xi64>,
        %turns: tensor<index>) -> ({kinds}) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = tensor.extract %turns[] : tensor<index>
      {" ".join(lines)}
      return {", ".join(name for name, _ in results)} : {kinds}
    }}"""
    found = run(text, [x, y, x.astype(np.int64), y.astype(np.int64), np.array(1)], X86_64_V3)
    for number, calculate in enumerate(OPERATIONS.values()):
        expected = [calculate(int(a), int(b)) for a, b in zip(x[:-1], y[:-1], strict=True) if b]
        for array in found[2 * number : 2 * number + 2]:
            np.testing.assert_array_equal(array[:-1][defined], expected)
