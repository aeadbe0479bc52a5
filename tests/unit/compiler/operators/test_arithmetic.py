"""Formulas in Python's operators: values of MLIR have numpy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import motet
from motet.compiler.ir._mlir import ir
from motet.compiler.operators.arithmetic import Arrays, FloatArithmetic, Floats, Number, Real
from motet.compiler.operators.pointwise import Read, pointwise

FORMULAS: list[Callable[[FloatArithmetic, Number, Number], Number]] = [
    lambda f, x, y: (x + y) * (x - y) / (1.5 + abs(y)),
    lambda f, x, y: 2 - (3 * x + 1) / (0.5 / -y) - 0.25,
    lambda f, x, y: f.select((x < y) | (x >= 2) & ~(y == 0.5), f.floor(x), f.ceil(y)),
    lambda f, x, y: f.select((x > y) & (x <= 1), 1, x) + f.select(x > 0, y, -1),
    lambda f, x, y: f.total([f.clip(x, -1, y), f.least(x, 0), f.most(y, x), f.round_away(y)]),
    lambda f, x, y: f.polynomial(x, (0.5, -1, 2)) + f.near_cubic(y, -0.75) * f.far_cubic(x, -0.5),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_have_the_results_of_numpy(dtype: Any) -> None:
    name = {np.float32: "f32", np.float64: "f64"}[dtype]
    x, y = (each.ravel().astype(dtype) for each in np.meshgrid([-2.5, -1, -0.0, 0.5, 1, 2.25], [-1.5, 0.5, 3]))
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        kind = ir.RankedTensorType.get([len(x)], ir.Type.parse(name))
        function = ir.Operation.create("func.func", regions=1, attributes={
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([kind] * 2, [kind] * len(FORMULAS))),
        }, ip=ir.InsertionPoint(module.body))  # fmt: skip
        block = function.regions[0].blocks.append(kind, kind)
        reads = [Read(argument, (0,)) for argument in block.arguments]
        with ir.InsertionPoint(block):
            results = [
                pointwise(kind, [], reads, lambda of, _, formula=formula: formula(
                    Floats(kind.element_type), *(Real(each) for each in of)))
                for formula in FORMULAS
            ]  # fmt: skip
            ir.Operation.create("func.return", operands=results)
        text = str(module)
    for formula, found in zip(FORMULAS, motet.load(motet.compile(text, cache=False))(x, y), strict=True):
        np.testing.assert_allclose(found, formula(Arrays(dtype), x, y), rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_a_comparison_has_no_truth_when_compiling() -> None:
    with ir.Context(), ir.Location.unknown(), ir.InsertionPoint(ir.Module.create().body):
        one = Floats(ir.F32Type.get()).of(1)
        with pytest.raises(TypeError, match="no result when compiling"):
            bool(0 < one < 2)
