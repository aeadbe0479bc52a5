"""Normalisations and variances against PyTorch in double precision, and the kernels that they become."""

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


FORMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layer": (torch.nn.LayerNorm(33), (2, 7, 33)),
    "layer of two axes": (torch.nn.LayerNorm((5, 17)), (3, 5, 17)),
    "layer without parameters": (torch.nn.LayerNorm(64, elementwise_affine=False), (1, 64)),
    "group": (torch.nn.GroupNorm(3, 6), (2, 6, 5, 7)),
    "group of one channel": (torch.nn.GroupNorm(4, 4), (1, 4, 9)),
    "group of all": (torch.nn.GroupNorm(1, 8, affine=False), (2, 8, 3)),
    "instance": (torch.nn.InstanceNorm2d(3), (2, 3, 8, 9)),
    "var": (Applied(lambda x: torch.var(x)), (4, 5)),
    "var of axes": (Applied(lambda x: torch.var(x, (0, -1), correction=0, keepdim=True)), (4, 5, 6)),
    "var and mean": (Applied(lambda x: torch.var_mean(x, 1)), (4, 5)),
    "std": (Applied(lambda x: torch.std(x, -1, correction=2)), (3, 11)),
    "var of one": (Applied(lambda x: torch.var(x, 1)), (4, 1)),
    "var of none": (Applied(lambda x: torch.var_mean(x, 0)), (0, 5)),
    "std of none": (Applied(lambda x: torch.std(x)), (0, 5)),
    "var less more elements than there are": (Applied(lambda x: torch.var(x, 1, correction=7)), (3, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_double_precision(form: str, dtype: Any) -> None:
    module, shape = FORMS[form]
    module = module.to(torch.float32)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3 + 100  # far from 0: digits are lost
    x = x.to(dtype)
    expected = module.double()(x.double())
    found = motet.load(motet.compile(module.to(dtype).eval(), inputs=[x], cache=False))(x)
    tolerance = {torch.float32: 2e-4, torch.bfloat16: 2e-2, torch.float64: 1e-9}[dtype]
    wanted, got = (each if isinstance(each, tuple) else (each,) for each in (expected, found))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_block_of_a_transformer_is_a_kernel_for_each_product_and_one_for_the_norm() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(96), torch.nn.Linear(96, 384), torch.nn.Linear(384, 96)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    for shape in ((7, 96), (2, 7, 96), (1, 5, 7, 96)):
        artifact = motet.compile(Block().eval(), inputs=[torch.randn(shape)], cache=False)
        for variant in artifact.manifest.variants:
            assert [kernel.kind for kernel in variant.kernels] == ["rows", "contraction", "contraction"], shape
