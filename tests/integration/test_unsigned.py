"""Unsigned integers of models: callers give and get unsigned arrays, and no number is taken for a negative one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CallError

KINDS = ("ui8", "ui16", "ui32", "ui64")


def numpy_kind(kind: str) -> Any:
    return np.dtype(kind.replace("ui", "uint"))


def sample(kind: Any) -> tuple[np.ndarray, np.ndarray]:
    top = int(np.iinfo(kind).max)
    a = np.array([0, 1, 5, top // 2, top // 2 + 1, top - 1, top], kind)
    return a, np.array([3, top, 2, top // 2 + 1, top // 2, 7, top], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_of_stablehlo(kind: str) -> None:
    t = f"tensor<7x{kind}>"
    source = f"""func.func public @main(%a: {t}, %b: {t}) -> ({t}, {t}, tensor<7xi1>, tensor<7xf64>, {t}) {{
      %0 = stablehlo.divide %a, %b : {t}
      %1 = stablehlo.maximum %a, %b : {t}
      %2 = stablehlo.compare LT, %a, %b, UNSIGNED : ({t}, {t}) -> tensor<7xi1>
      %3 = stablehlo.convert %a : ({t}) -> tensor<7xf64>
      %4 = stablehlo.remainder %a, %b : {t}
      return %0, %1, %2, %3, %4 : {t}, {t}, tensor<7xi1>, tensor<7xf64>, {t} }}"""
    session = motet.load(motet.compile(source, cache=False))
    assert [spec.dtype for spec in session.main.signature.inputs] == [kind, kind]
    a, b = sample(numpy_kind(kind))
    results = session(a, b)
    for mine, wanted in zip(results, (a // b, np.maximum(a, b), a < b, a.astype(np.float64), a % b), strict=True):
        assert mine.dtype == wanted.dtype
        np.testing.assert_array_equal(mine, wanted)
    with pytest.raises(CallError, match=f"dtype i{kind[2:]} given, {kind} expected"):
        session(a.view(f"i{a.itemsize}"), b)


def test_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.t(), x.float()

    x = torch.tensor([[200, 1, 2], [3, 4, 255]], dtype=torch.uint8)
    session = motet.load(motet.compile(Model(), inputs=(x,), cache=False))
    turned, floats = session(x)
    assert turned.dtype == torch.uint8
    assert torch.equal(turned, x.t())
    assert torch.equal(floats, x.float())
