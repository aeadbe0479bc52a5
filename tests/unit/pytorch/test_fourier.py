"""Fourier transforms and complex numbers of PyTorch, against numpy's in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'motet[torch]'")

import motet  # noqa: E402
from motet.pytorch.fourier import transform, transform_plan  # noqa: E402


@pytest.mark.parametrize("length", [1, 2, 3, 31, 64, 65, 96, 97, 127, 128, 360, 1009, 1024, 1031, 2062])
def test_transform_of_any_length_matches_numpy(length: int) -> None:
    x = np.random.default_rng(length).standard_normal((2, 3, length)) * (1 + 0.5j)
    plan = transform_plan(length, torch.from_numpy)
    for forward, expected in ((True, np.fft.fft(x, axis=1 + 1)), (False, np.fft.ifft(x) * length)):
        parts = [torch.from_numpy(part.copy()) for part in (x.real, x.imag)]
        re, im = transform(*parts, [2], [plan], forward, 1.0)
        np.testing.assert_allclose(re.numpy() + 1j * im.numpy(), expected, atol=1e-10 * length)


class Spectra(torch.nn.Module):
    """Forms of the transforms, each of which has real results."""

    def forward(self, x: Any) -> Any:
        fft = torch.fft
        whole = fft.fft(x, dim=1, norm="ortho")
        mixed = fft.ifft2(whole * torch.polar(x, x) / (whole + 2j), s=(8, 5))
        return (
            torch.view_as_real(whole), mixed.real, mixed.imag, torch.abs(mixed), torch.angle(mixed),
            fft.irfft(fft.rfft(x, n=9, norm="forward"), n=9, norm="forward"), fft.irfftn(fft.rfftn(x)),
            fft.hfft(fft.ihfft(x)), fft.fftshift(x).add(fft.ifftshift(x, dim=-1)), whole.conj().mul(whole).real.sum(),
            fft.irfft2(torch.complex(x, -x)), torch.stft(x[0], 4, 2, return_complex=True).abs(),
            (whole @ whole.transpose(-1, -2)).real,
        )  # fmt: skip


def check(module: Any, x: Any, given: Any, shapes: Any) -> None:
    session: Any = motet.load(motet.compile(module, inputs=[x], dynamic_shapes=shapes, cache=False))
    for place, (found, wanted) in enumerate(zip(session(given), module(given.double()), strict=True)):
        scale = float(wanted.abs().max())
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=2e-5 * scale, err_msg=str(place))


@pytest.mark.slow
def test_forms_of_transforms_match_pytorch() -> None:
    torch.manual_seed(3)
    x = torch.randn(3, 7, 10)
    check(Spectra(), x, x, None)


class Dynamic(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        whole = torch.fft.rfft(x)
        return torch.fft.irfft(whole * (1 - 2j), n=10), torch.fft.fft2(x).abs()


def test_batch_of_a_transform_may_differ() -> None:
    torch.manual_seed(4)
    check(Dynamic(), torch.randn(3, 7, 10), torch.randn(5, 7, 10), ({0: torch.export.Dim("batch", min=2, max=9)},))


class Written(torch.nn.Module):
    """Complex results, and numbers written to complex tensors."""

    def forward(self, x: Any) -> Any:
        z, positive = torch.complex(x, 1 - x), x > 0
        return (
            torch.full((3, 4), 3.0, dtype=z.dtype) * torch.nn.functional.pad(z, (1, 2), value=3.0)[:, :4],
            (torch.full_like(z, 2) - z.masked_fill(positive, 1)) * torch.where(positive, z, 2.0),
            z.cumprod(1) + z.clone().fill_(5) + torch.where(positive, 1j, z), z.trace(),
        )  # fmt: skip


class Functions(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        z = torch.complex(x, 1 - x)
        column = torch.zeros(x.shape[0], 1, dtype=torch.int64)
        return (
            z.sin(), z.cos(), z.tan(), z.sinh(), z.cosh(), z.tanh(), z.sigmoid(), z.log2(), z.log10(), z.log1p(),
            z.expm1(), z.sqrt(), z.rsqrt(), z**0, z**2, z**-1, z**0.5, z.var(1), z.std(1), z.logical_not(),
            (z / 0).isinf(), torch.outer(z[0], z[1]), torch.einsum("ij,kj->ik", z, z.conj()),
            torch.eye(4, dtype=z.dtype) + z[0], z.scatter(1, column, 7), torch.zeros_like(z, dtype=x.dtype) + x,
        )  # fmt: skip


@pytest.mark.parametrize("module", [Written(), pytest.param(Functions(), marks=pytest.mark.slow)])
def test_complex_numbers_match_pytorch(module: Any) -> None:
    torch.manual_seed(5)
    x = torch.randn(3, 4)
    x[0, 0], x[1, 1] = 9.0, 1e-5
    results = motet.load(motet.compile(module, inputs=[x], cache=False))(x)
    for place, (found, plain, wanted) in enumerate(zip(results, module(x), module(x.double()), strict=True)):
        assert (found.dtype, found.shape) == (plain.dtype, plain.shape), place
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), 2e-5, 1e-6, err_msg=str(place))


def test_linear_algebra_of_complex_numbers_is_refused() -> None:
    class Determinant(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.det(torch.complex(x, x))

    pattern = r"test_fourier\.py:\d+: .*linalg.* of complex numbers: this operator has no lowering"
    with pytest.raises(motet.CompileError, match=pattern):
        motet.compile(Determinant(), inputs=[torch.eye(3)], cache=False)
