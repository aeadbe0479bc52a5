"""Factorisations of matrices have no lowering: the error says what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'motet[torch]'")

import motet  # noqa: E402


class Applied(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Any) -> Any:
        return self._function(x)


@pytest.mark.parametrize("name", ["inv", "cholesky", "eigvalsh", "qr", "svdvals"])
def test_the_error_names_the_operator_and_what_would_work(name: str) -> None:
    function = getattr(torch.linalg, name)
    pattern = r"test_factorisations\.py:\d+: aten\._?linalg_\w+: factorisations of matrices.* as inputs"
    with pytest.raises(motet.CompileError, match=pattern):
        motet.compile(Applied(function), inputs=[torch.eye(3)], cache=False)


def test_determinants_are_computed() -> None:
    matrix = torch.tensor([[2.0, 1], [1, 3]])
    found = motet.load(motet.compile(Applied(torch.linalg.det), inputs=[matrix], cache=False))(matrix)
    assert abs(float(found) - 5) < 1e-5
