"""Rules for PyTorch's operators on complex tensors, in terms of real and imaginary parts."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class ComplexPair(NamedTuple):
    """A complex tensor or number."""

    re: Any
    im: Any


# Operators that apply to both parts separately: they move, select, or add elements.
ALIKE = frozenset({
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "cat", "stack",
    "clone", "unsqueeze", "squeeze", "flip", "index", "index_select", "gather", "repeat", "roll", "alias", "detach",
    "lift_fresh_copy", "split", "split_with_sizes", "unfold", "as_strided", "diagonal", "slice_scatter",
    "select_scatter", "index_put", "index_add", "scatter", "scatter_add", "sum", "mean", "cumsum", "neg", "flatten",
    "unflatten", "unbind", "where", "tril", "triu", "empty_like", "zeros_like", "zeros", "empty", "new_zeros", "copy",
    "diag_embed", "movedim", "constant_pad_nd", "embedding", "chunk", "narrow", "broadcast_in_dim", "contiguous",
    "full_like", "scalar_tensor", "full", "masked_fill", "fill", "squeeze_copy", "reflection_pad1d",
})  # fmt: skip


def _is_split(value: Any) -> bool:
    return isinstance(value, ComplexPair)


def _split(value: Any) -> ComplexPair:
    if isinstance(value, ComplexPair):
        return value
    return ComplexPair(value, torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0)


# Arguments that are numbers to be stored. Their imaginary part is zero, unless they are complex.
_WRITTEN = {"full": (1,), "full_like": (1,), "scalar_tensor": (0,), "fill": (1,), "masked_fill": (2,),
            "constant_pad_nd": (2,), "where": (1, 2), "scatter": (3,)}


def on_both(name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """`target`, named `name`, applied to the real and the imaginary parts."""
    written = _WRITTEN.get(name, ())

    def part(value: Any, which: int, place: int) -> Any:
        if isinstance(value, ComplexPair):
            return value[which]
        if which and isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            return torch.zeros_like(value)
        return 0.0 if which and place in written and isinstance(value, (bool, int, float)) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.pop("dtype", None)
        if dtype in REAL:
            kwargs["dtype"] = REAL[dtype]

        def take(which: int) -> Any:
            given = [tree_map(lambda leaf, n=n: part(leaf, which, n), arg, is_leaf=_is_split)
                     for n, arg in enumerate(args)]
            named = {key: tree_map(lambda leaf: part(leaf, which, -1), arg, is_leaf=_is_split)
                     for key, arg in kwargs.items()}
            return target(*given, **named)

        re, im = take(0), take(1)
        return [
            ComplexPair(a, b) for a, b in zip(re, im, strict=True)
        ] if isinstance(re, (list, tuple)) else ComplexPair(re, im)

    return call


def joined(value: Any) -> Any:
    """The complex tensor or number with the given parts; other values unchanged."""
    if not isinstance(value, ComplexPair):
        return value
    if not isinstance(value.re, torch.Tensor):
        return complex(value.re, value.im)
    return torch.view_as_complex(torch.stack([value.re, value.im], -1))


def on_whole(target: Callable[..., Any]) -> Callable[..., Any]:
    """`target` on complex tensors, with operands and results as parts."""

    def parted(value: Any) -> Any:
        is_complex = isinstance(value, torch.Tensor) and value.is_complex()
        return ComplexPair(torch.real(value), torch.imag(value)) if is_complex else value

    def call(*args: Any, **kwargs: Any) -> Any:
        given, named = tree_map(joined, (args, kwargs), is_leaf=_is_split)
        return tree_map(parted, target(*given, **named))

    return call


def _add(a: Any, b: Any, *, alpha: Any = 1) -> ComplexPair:
    a, b = _split(a), _split(b)
    return ComplexPair(a.re + alpha * b.re, a.im + alpha * b.im)


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> ComplexPair:
    return _add(a, b, alpha=-alpha)


def _rsub(a: Any, b: Any, *, alpha: Any = 1) -> ComplexPair:
    return _add(b, a, alpha=-alpha)


def _mul(a: Any, b: Any) -> ComplexPair:
    if not isinstance(b, ComplexPair):
        return ComplexPair(a.re * b, a.im * b)
    if not isinstance(a, ComplexPair):
        return ComplexPair(a * b.re, a * b.im)
    return ComplexPair(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _div(a: Any, b: Any) -> ComplexPair:
    """Divides by the larger of the divisor's parts first (Smith, 1962), so that no square overflows."""
    if not isinstance(b, ComplexPair):
        return ComplexPair(a.re / b, a.im / b)
    a = _split(a)
    re, im = (torch.as_tensor(part) for part in b)
    scale = torch.maximum(re.abs(), im.abs())
    re, im = re / scale, im / scale
    size = (re * re + im * im) * scale
    return ComplexPair((a.re * re + a.im * im) / size, (a.im * re - a.re * im) / size)


def _reciprocal(a: ComplexPair) -> ComplexPair:
    return _div(ComplexPair(torch.ones_like(a.re), torch.zeros_like(a.re)), a)


def _abs(a: ComplexPair) -> Any:
    large, small = torch.maximum(a.re.abs(), a.im.abs()), torch.minimum(a.re.abs(), a.im.abs())
    ratio = torch.where(large == 0, 0.0, small / large)
    return torch.where(torch.isinf(large), large, large * torch.sqrt(1 + ratio * ratio))


def _exp(a: ComplexPair) -> ComplexPair:
    size = torch.exp(a.re)
    return ComplexPair(size * torch.cos(a.im), size * torch.sin(a.im))


def _log(a: ComplexPair) -> ComplexPair:
    return ComplexPair(torch.log(_abs(a)), torch.atan2(a.im, a.re))


def _log1p(a: ComplexPair) -> ComplexPair:
    near = torch.log1p(a.re * (2 + a.re) + a.im * a.im) / 2
    far = _log(ComplexPair(1 + a.re, a.im))
    return ComplexPair(torch.where(_abs(a) < 0.5, near, far.re), far.im)


def _expm1(a: ComplexPair) -> ComplexPair:
    half = torch.sin(a.im / 2)
    return ComplexPair(torch.expm1(a.re) * torch.cos(a.im) - 2 * half * half, torch.exp(a.re) * torch.sin(a.im))


def _scaled(function: Callable[[ComplexPair], ComplexPair], factor: float) -> Callable[[ComplexPair], ComplexPair]:
    return lambda a: ComplexPair(*(part * factor for part in function(a)))


def _sinh(a: ComplexPair) -> ComplexPair:
    return ComplexPair(torch.sinh(a.re) * torch.cos(a.im), torch.cosh(a.re) * torch.sin(a.im))


def _cosh(a: ComplexPair) -> ComplexPair:
    return ComplexPair(torch.cosh(a.re) * torch.cos(a.im), torch.sinh(a.re) * torch.sin(a.im))


def _tanh(a: ComplexPair) -> ComplexPair:
    """Uses exponentials that are at most 1, to avoid overflow."""
    small, cosine = torch.exp(-2 * a.re.abs()), torch.cos(a.im)
    gap = torch.expm1(-2 * a.re.abs())
    size = gap * gap + 4 * small * cosine * cosine
    return ComplexPair(-torch.sign(a.re) * torch.expm1(-4 * a.re.abs()) / size, 2 * small * torch.sin(2 * a.im) / size)


def _turned(function: Callable[[ComplexPair], ComplexPair]) -> Callable[[ComplexPair], ComplexPair]:
    """-i·f(i·a): sin from sinh, tan from tanh."""

    def call(a: ComplexPair) -> ComplexPair:
        found = function(ComplexPair(-a.im, a.re))
        return ComplexPair(found.im, -found.re)

    return call


def _sigmoid(a: ComplexPair) -> ComplexPair:
    half = _tanh(ComplexPair(a.re / 2, a.im / 2))
    return ComplexPair((1 + half.re) / 2, half.im / 2)


def _var(a: ComplexPair, *args: Any, **kwargs: Any) -> Any:
    return torch.ops.aten.var.correction(a.re, *args, **kwargs) + torch.ops.aten.var.correction(a.im, *args, **kwargs)


def _pow(a: ComplexPair, exponent: Any) -> Any:
    if isinstance(exponent, float) and exponent.is_integer():
        exponent = int(exponent)
    if exponent == 0 and isinstance(exponent, int):
        return ComplexPair(torch.ones_like(a.re), torch.zeros_like(a.im))
    if not isinstance(exponent, int) or not 0 < exponent <= 64:
        return _exp(_mul(_log(a), exponent))
    result = a
    for digit in bin(exponent)[3:]:
        result = _mul(result, result)
        result = _mul(result, a) if digit == "1" else result
    return result


def _product(join: Callable[[Any, Any], Any]) -> Callable[..., ComplexPair]:
    def call(a: Any, b: Any) -> ComplexPair:
        if not isinstance(b, ComplexPair):
            return ComplexPair(join(a.re, b), join(a.im, b))
        if not isinstance(a, ComplexPair):
            return ComplexPair(join(a, b.re), join(a, b.im))
        return ComplexPair(join(a.re, b.re) - join(a.im, b.im), join(a.re, b.im) + join(a.im, b.re))

    return call


def _addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> ComplexPair:
    return _add(_mul(_product(torch.mm)(a, b), alpha), _mul(_split(c), beta))


def _convert(a: Any, dtype: Any = None, **others: Any) -> Any:
    if dtype is None:
        return a
    real = REAL.get(dtype)
    if real is None:
        return _split(a).re.to(dtype)
    a = _split(a)
    return ComplexPair(a.re.to(real), a.im.to(real))


def _view_as_complex(a: Any) -> ComplexPair:
    return ComplexPair(a.select(-1, 0), a.select(-1, 1))


def _polar(size: Any, angle: Any) -> ComplexPair:
    return ComplexPair(size * torch.cos(angle), size * torch.sin(angle))


def _equal(a: Any, b: Any) -> Any:
    a, b = _split(a), _split(b)
    return (a.re == b.re) & (a.im == b.im)


def _prod(a: ComplexPair, dim: int, keepdim: bool = False) -> ComplexPair:
    parts: Sequence[Any] = list(zip(a.re.unbind(dim), a.im.unbind(dim), strict=True))
    result = ComplexPair(*parts[0])
    for part in parts[1:]:
        result = _mul(result, ComplexPair(*part))
    return ComplexPair(*(part.unsqueeze(dim) for part in result)) if keepdim else result


def _conj(a: ComplexPair) -> ComplexPair:
    return ComplexPair(a.re, -a.im)


def _same(a: Any) -> Any:
    return a


RULES: dict[str, Callable[..., Any]] = {
    "add": _add, "sub": _sub, "rsub": _rsub, "mul": _mul, "div": _div, "true_divide": _div, "reciprocal": _reciprocal,
    "abs": _abs, "angle": lambda a: torch.atan2(a.im, a.re), "exp": _exp, "log": _log, "pow": _pow,
    "log2": _scaled(_log, 1 / math.log(2)), "log10": _scaled(_log, 1 / math.log(10)), "log1p": _log1p, "expm1": _expm1,
    "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "sin": _turned(_sinh), "tan": _turned(_tanh),
    "cos": lambda a: _cosh(ComplexPair(-a.im, a.re)), "sigmoid": _sigmoid, "var": _var,
    "std": lambda a, *args, **kwargs: torch.sqrt(_var(a, *args, **kwargs)),
    "logical_not": lambda a: (a.re == 0) & (a.im == 0),
    "square": lambda a: _mul(a, a),
    "mm": _product(torch.mm), "bmm": _product(torch.bmm), "mv": _product(torch.mv), "dot": _product(torch.dot),
    "matmul": _product(torch.matmul), "addmm": _addmm, "prod": _prod,
    "_to_copy": _convert, "convert_element_type": _convert, "to": _convert,
    "complex": ComplexPair, "polar": _polar, "view_as_complex": _view_as_complex,
    "view_as_real": lambda a: torch.stack([a.re, a.im], -1), "real": lambda a: _split(a).re, "imag": lambda a: a.im,
    "conj": _conj, "_conj": _conj, "conj_physical": _conj, "_conj_physical": _conj, "resolve_conj": _same,
    "_conj_copy": _conj, "resolve_neg": _same, "eq": _equal, "ne": lambda a, b: ~_equal(a, b),
    "sgn": lambda a: _div(a, torch.where(_abs(a) == 0, 1.0, _abs(a))),
    "isnan": lambda a: torch.isnan(a.re) | torch.isnan(a.im),
    "isinf": lambda a: torch.isinf(a.re) | torch.isinf(a.im),
    "isfinite": lambda a: torch.isfinite(a.re) & torch.isfinite(a.im),
    "ones_like": lambda a, **k: ComplexPair(torch.ones_like(a.re), torch.zeros_like(a.re)),
    "sqrt": lambda a: _exp(_mul(_log(a), 0.5)), "rsqrt": lambda a: _exp(_mul(_log(a), -0.5)),
}  # fmt: skip
