"""Python's functions of dynamic extents, and operators of dynamic extents, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CallError, CompileError

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
from tests.unit.pytorch.functions import Function  # noqa: E402

AUTO = torch.export.Dim.AUTO
F = torch.nn.functional


def compiled(function: Callable[..., Any], example: Any, axes: Sequence[int]) -> Any:
    shapes = ((dict.fromkeys(axes, AUTO),),)
    return motet.load(motet.compile(Function(function), inputs=[example], dynamic_shapes=shapes, cache=False))


def agree(session: Any, function: Callable[..., Any], x: Any) -> None:
    found, wanted = session(x), function(x)
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


# Numbers of the first elements to take, of n + 20.
WHOLE: dict[str, Callable[[int], int]] = {
    "min": lambda n: torch.sym_min(n, 7), "max": lambda n: torch.sym_max(n, 7), "mod": lambda n: (4 - n % 4) % 4,
    "negative mod": lambda n: -n % 7, "ceil": lambda n: math.ceil(n / 3), "floor": lambda n: math.floor(n / 3),
    "round to even": lambda n: round(n / 2), "round": lambda n: round(n / 7), "round quarters": lambda n: round(n / 4),
    "power": lambda n: n**3 % 20, "of two": lambda n: round((n + 1) / (n % 5 + 2)),
    "least of rounded": lambda n: torch.sym_min(math.ceil(n / 4), n // 3 + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_round_as_in_python(name: str) -> None:
    def function(x: Any) -> Any:
        return F.pad(x, (0, 20))[: x.shape[0] + 20, : WHOLE[name](x.shape[0]) + 2] * 2

    wide = torch.arange(60.0).reshape(1, 60)
    session = compiled(function, wide.expand(9, 60).contiguous(), [0])
    for extent in (*range(3, 33), 64, 127):
        try:
            wanted = function(wide.expand(extent, 60))
            found = session(wide.expand(extent, 60).contiguous())
        except CallError as error:
            assert "the program was exported for inputs with" in str(error)
            continue
        np.testing.assert_array_equal(found, wanted.numpy(), strict=True)


@pytest.mark.parametrize("function", [
    lambda x: x / x.shape[0] ** 0.5, lambda x: x * (1 / x.shape[0]), lambda x: x * (x.shape[0] / 7 + x.shape[0]),
    lambda x: torch.pow(x.abs(), x.shape[0] / 10), lambda x: x - x.shape[0] * 0.25, lambda x: x.shape[0] - x,
    lambda x: torch.full((2, 3), x.shape[0] * 0.5), lambda x: torch.quantile(x, 0.3, dim=0),
])  # fmt: skip
def test_numbers_made_of_extents(function: Callable[..., Any]) -> None:
    session = compiled(function, torch.ones(9, 3), [0])
    for extent in (2, 3, 8, 65):
        agree(session, function, torch.randn(extent, 3))


def test_other_functions_of_extents_are_refused_with_their_place() -> None:
    with pytest.raises(CompileError, match=r"functions.py:\d+: pow of extents: it has no lowering; expected"):
        compiled(lambda x: x * x.shape[0] ** 9, torch.ones(9, 3), [0])


ROWS: dict[str, Callable[..., Any]] = {
    "split": lambda x: torch.split(x, 3)[0], "chunk": lambda x: torch.cat([2 * a for a in torch.chunk(x, 2)]),
    "median": lambda x: torch.median(x, 0)[0], "argmax of NaN": lambda x: torch.where(x > 1, torch.nan, x).argmax(0),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]), "unfold": lambda x: x.unfold(0, 3, 2),
    "roll": lambda x: torch.roll(x, x.shape[0] // 3, 0), "tile": lambda x: x.repeat(x.shape[0], 1),
    "rows": lambda x: x + torch.arange(x.shape[0])[:, None] * 0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_operators_of_a_dynamic_number_of_rows(name: str) -> None:
    session = compiled(ROWS[name], torch.randn(11, 4), [0] if name != "rms_norm" else [0, 1])
    for extent in (11, 10, 12) if name in ("split", "chunk") else (5, 10, 33):
        x = torch.randn(extent, 4 if name != "rms_norm" else extent + 1)
        try:
            agree(session, ROWS[name], x)
        except CallError as error:
            assert "the program was exported for inputs with" in str(error)


IMAGES: dict[str, Callable[..., Any]] = {
    **{f"pad {mode}": lambda x, mode=mode: F.pad(x, (2, 1, 1, 3), mode=mode)
       for mode in ("reflect", "replicate", "circular")},
    "circular convolution": lambda x: F.conv2d(F.pad(x, (1, 1, 1, 1), "circular"), torch.ones(2, 3, 3, 3)),
    "area": lambda x: F.interpolate(x, scale_factor=1.5, mode="area"),
    "smaller area": lambda x: F.interpolate(x, scale_factor=0.6, mode="area"),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, None)),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "spectrum": lambda x: torch.view_as_real(torch.stft(
        x.flatten(1), 16, 4, window=torch.hann_window(16), return_complex=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_operators_of_images_of_dynamic_extents(name: str) -> None:
    session = compiled(IMAGES[name], torch.randn(2, 3, 8, 9), [2, 3])
    for extents in ((8, 9), (5, 7), (16, 13)):
        agree(session, IMAGES[name], torch.randn(2, 3, *extents))


def test_extents_that_tracing_fixes_are_fixed() -> None:
    session = compiled(lambda x: F.max_pool1d(x, 2), torch.randn(2, 3, 9), [0, 2])
    agree(session, lambda x: F.max_pool1d(x, 2), torch.randn(5, 3, 9))
    with pytest.raises(CallError, match="1x3x9 expected"):
        session(torch.randn(1, 3, 17))


@pytest.mark.parametrize("form", ["numbers", "lines", "with a bias"])
def test_products_of_8_bit_floats_with_scales(form: str) -> None:
    def function(a: Any) -> Any:
        kind, lines = torch.float8_e4m3fn, form == "lines"
        b = a.flip(0) * 0.5
        scales = (a.abs().amax(1, True), b.abs().amax(1, True).t()) if lines else (torch.tensor(0.5), torch.tensor(2.0))
        bias = torch.ones(16, dtype=torch.bfloat16) if form == "with a bias" else None
        return torch._scaled_mm(a.to(kind), b.to(kind).t(), *scales, bias=bias, out_dtype=torch.bfloat16).float()

    x = torch.randn(16, 32)
    try:
        wanted = function(x)
    except RuntimeError as error:
        pytest.skip(f"PyTorch cannot calculate it here: {error}")
    with motet.load(motet.compile(Function(function), inputs=[x], cache=False)) as session:
        np.testing.assert_allclose(session(x), wanted.numpy(), rtol=2**-7, atol=1e-3)
