"""Operators of PyTorch, one form each: a function of tensors, and tensors of odd shapes."""

# ruff: noqa: E501, B008 - tables, one form a line

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from tests.integration.closeness import misses

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1e-6, -1e-6, 0.5, -0.5, 1.5, 2.5, 20.0, -20.0, 90.0, -90.0, 1e-3]


@dataclass
class TorchForm:
    """`function` of `inputs`; errors up to `relative` of each element, with `mixed` of the largest, are allowed
    beside that of the type. `wide` says that torch may be asked in float64."""

    name: str
    function: Callable[..., Any]
    inputs: Sequence[torch.Tensor]
    relative: float = 2e-6
    mixed: bool = False
    wide: bool = True

    def expected(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The results as torch has them, and in float64 where that may be asked for."""
        with torch.no_grad():
            plain = results_of(self.function(*self.inputs))
            if not self.wide:
                return plain, plain
            function = self.function
            if isinstance(function, torch.nn.Module):
                function = _copy(function).double()
            with _WideConstants():
                exact = results_of(function(*(_widened(x) for x in self.inputs)))
        return plain, exact


def _copy(module: torch.nn.Module) -> torch.nn.Module:
    import copy

    return copy.deepcopy(module)


class _WideConstants:
    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(torch.float32)


def results_of(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    return [tensor for part in found for tensor in results_of(part)]


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.dtype.is_floating_point else x


def faults(form: TorchForm, found: Sequence[torch.Tensor]) -> str:
    """What is wrong with the results of a form; empty when nothing is."""
    plain, exact = form.expected()
    if len(found) != len(plain):
        return f"{len(found)} results, expected {len(plain)}"
    for number, (mine, kind, want) in enumerate(zip(found, plain, exact, strict=True)):
        if kind.dtype == torch.uint8 and mine.dtype == torch.int8:
            mine = mine.view(torch.uint8)  # programs have integers without sign
        if mine.dtype != kind.dtype or mine.shape != kind.shape:
            return f"result {number}: {mine.dtype}{list(mine.shape)}, expected {kind.dtype}{list(kind.shape)}"
        wrong = _wrong(form, mine, kind, want)
        if wrong.any():
            place = tuple(int(i) for i in torch.nonzero(wrong)[0])
            return (f"result {number}: {int(wrong.sum())} of {wrong.numel()} wrong, the first at {place}: "
                    f"{mine[place].item()!r}, expected {want[place].item()!r}")
    return ""


def _wrong(form: TorchForm, mine: torch.Tensor, kind: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    if not mine.dtype.is_floating_point:
        return mine != kind
    if mine.dtype == torch.bfloat16:
        numbers = mine.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        numbers = mine.numpy()
    return torch.from_numpy(np.asarray(misses(numbers, want.double().numpy(), form.relative, form.mixed)))


class Values:
    """Random tensors, the same in every run for a form of the same words."""

    def __init__(self, *words: object) -> None:
        self.generator = torch.Generator().manual_seed(zlib.crc32(repr(words).encode()))

    def floats(self, *shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3) -> torch.Tensor:
        return (torch.rand(shape, generator=self.generator) * (high - low) + low).to(dtype)

    def ints(self, *shape: int, dtype: torch.dtype = torch.int64, low: int = -9, high: int = 9) -> torch.Tensor:
        return torch.randint(low, high + 1, shape, generator=self.generator).to(dtype)

    def bools(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, 2, shape, generator=self.generator).bool()


def _form(name: str, function: Callable[..., Any], *inputs: torch.Tensor, relative: float = 4e-6, mixed: bool = False,
          wide: bool = True) -> TorchForm:
    return TorchForm(name, function, inputs, relative, mixed, wide)


_UNARY: dict[str, tuple[float, float, list[float]]] = {
    "abs": (-3, 3, SPECIAL), "neg": (-3, 3, SPECIAL), "sign": (-3, 3, SPECIAL), "sgn": (-3, 3, SPECIAL),
    "ceil": (-9, 9, SPECIAL), "floor": (-9, 9, SPECIAL), "round": (-9, 9, SPECIAL), "trunc": (-9, 9, SPECIAL),
    "frac": (-9, 9, [0.5, -0.5, 2.0]), "sqrt": (0, 9, [0.0, INF, NAN, -1.0]), "rsqrt": (0.01, 9, [0.0, INF, -1.0]),
    "reciprocal": (-3, 3, [0.0, INF]), "square": (-3, 3, SPECIAL), "exp": (-9, 9, SPECIAL), "exp2": (-9, 9, SPECIAL),
    "expm1": (-3, 3, SPECIAL), "log": (0.01, 9, [0.0, INF, -1.0, 1.001]), "log2": (0.01, 9, [0.0, 1.001]),
    "log10": (0.01, 9, [0.0, 1.001]), "log1p": (-0.9, 9, [1e-6, -1e-6, 0.0, -1.0]), "sin": (-9, 9, [0.0, 50.0]),
    "cos": (-9, 9, [0.0, 50.0]), "tan": (-1.5, 1.5, [0.0, 1e-4]), "asin": (-1, 1, [1.0, -1.0, 1e-4]),
    "acos": (-1, 1, [1.0, -1.0]), "atan": (-9, 9, SPECIAL), "sinh": (-9, 9, [0.0, 1e-4]), "cosh": (-9, 9, [0.0]),
    "tanh": (-9, 9, SPECIAL), "asinh": (-9, 9, [0.0, 1e-4, -200.0]), "acosh": (1, 9, [1.0, 1.001]),
    "atanh": (-0.99, 0.99, [0.0, 1e-4]), "erf": (-4, 4, SPECIAL), "erfc": (-3, 6, [0.0]), "sigmoid": (-9, 9, SPECIAL),
    "lgamma": (0.1, 9, [1.0, 2.0]), "digamma": (0.1, 9, [1.0]), "isnan": (-1, 1, SPECIAL), "isinf": (-1, 1, SPECIAL),
    "isfinite": (-1, 1, SPECIAL), "logit": (0.01, 0.99, []), "signbit": (-3, 3, [0.0, -0.0]), "relu": (-3, 3, SPECIAL),
    "nan_to_num": (-3, 3, SPECIAL), "sinc": (-3, 3, [0.0]), "deg2rad": (-300, 300, []), "rad2deg": (-3, 3, []),
    "erfinv": (-0.99, 0.99, [0.0]), "positive": (-3, 3, []), "i0": (-3, 3, [0.0]), "special_ndtr": (-3, 3, []),
    "special_log_ndtr": (-3, 3, []), "special_entr": (0, 3, [0.0]), "logical_not": (-1, 1, [0.0]),
}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "elu": F.elu, "elu 0.4": lambda x: F.elu(x, 0.4), "celu": F.celu, "celu 0.4": lambda x: F.celu(x, 0.4), "selu": F.selu,
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "softplus": F.softplus, "softplus 2 5": lambda x: F.softplus(x, 2, 5), "softsign": F.softsign, "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 1.3), "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu, "leaky_relu -0.2": lambda x: F.leaky_relu(x, -0.2), "logsigmoid": F.logsigmoid,
    "softshrink": lambda x: F.softshrink(x, 0.7), "hardshrink": lambda x: F.hardshrink(x, 0.7),
    "threshold": lambda x: F.threshold(x, 0.3, -1.7), "rrelu": lambda x: F.rrelu(x),
}  # fmt: skip
# Sums that cancel near zero: errors are held against the largest result.
_CANCEL = frozenset({"special_ndtr", "special_log_ndtr", "asinh", "acosh", "atanh", "logit", "lgamma", "digamma", "erfinv"})
NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def unary() -> Iterator[TorchForm]:
    for name, (low, high, special) in _UNARY.items():
        for dtype in NARROW:
            x = torch.cat([Values(name, dtype).floats(37, dtype=dtype, low=low, high=high), torch.tensor(special, dtype=dtype)])
            if name in ("ceil", "floor", "round", "frac", "trunc", "sign", "sgn", "signbit"):
                x = x + 0
            yield _form(f"{name} {dtype}", getattr(torch, name, None) or getattr(torch.special, name.removeprefix("special_")), x,
                        mixed=name in _CANCEL)
    for name, function in _ACTIVATIONS.items():
        for dtype in NARROW:
            special = torch.tensor([0.0, -0.0, 3.0, -3.0, 6.0, 19.0, 25.0, -25.0, 1e-3, -1e-3, 0.7, -0.7], dtype=dtype)
            yield _form(f"{name} {dtype}", function, torch.cat([Values(name, dtype).floats(37, dtype=dtype, low=-6, high=6), special]),
                        mixed=True)
    for name in ("abs", "neg", "sign", "square", "bitwise_not"):
        for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8):
            yield _form(f"{name} {dtype}", getattr(torch, name), Values(name).ints(13, dtype=dtype, low=0 if dtype == torch.uint8 else -9))
    for name in ("round", "floor", "trunc"):
        yield _form(f"{name} of halves", getattr(torch, name), torch.arange(-4.5, 5, 0.5))
    yield _form("round decimals", lambda x: torch.round(x, decimals=2), Values(1).floats(9))
    for dtype in (torch.float32, torch.int32, torch.uint8):
        y = torch.tensor([3.7, 200.2, 0.5, 1, 99.9]).to(dtype)
        for to in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
                   torch.uint8, torch.bool):
            if not (dtype == torch.float32 and to == torch.int8):
                yield _form(f"{dtype} to {to}", functools.partial(_to, to), y, wide=False, relative=0)
    z = torch.tensor([-3.7, -100.2, -0.5, 70000, 1e-8, NAN, INF])
    for to in (torch.float16, torch.bfloat16, torch.float64, torch.bool):
        yield _form(f"float to {to}", functools.partial(_to, to), z, wide=False)
    yield _form("float to int", lambda x: x.int(), z[:4])
    yield _form("to float8", lambda x: x.to(torch.float8_e4m3fn).float(), torch.tensor([0.1, 3.3, -100.0, 400]), wide=False)


def _to(dtype: torch.dtype, x: Any) -> Any:
    return x.to(dtype)


def binary() -> Iterator[TorchForm]:
    for name in ("add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmax", "fmin", "fmod", "remainder",
                 "floor_divide", "hypot", "logaddexp", "logaddexp2", "copysign", "true_divide", "xlogy", "nextafter", "eq", "lt", "ge", "ne",
                 "logical_and", "logical_xor", "heaviside", "ldexp"):
        for dtype in NARROW:
            v = Values(name, dtype)
            a, b = v.floats(3, 1, 7, dtype=dtype), v.floats(5, 1, dtype=dtype, low=0.3)
            if name in ("fmod", "remainder", "floor_divide", "copysign", "atan2"):
                b[::2] *= -1
            if name == "nextafter" and dtype in (torch.float16, torch.bfloat16):
                continue
            yield _form(f"{name} {dtype}", getattr(torch, name), a.abs() if name in ("pow", "xlogy") else a, b,
                        wide=name not in ("nextafter", "fmod", "remainder", "floor_divide") or dtype == torch.float64)
        if name in ("maximum", "minimum", "fmax", "fmin", "atan2", "eq", "lt", "ge", "add", "fmod", "remainder", "copysign", "logaddexp",
                    "xlogy", "hypot"):
            a = torch.tensor([NAN, 1, NAN, INF, -INF, 0.0, -0.0, 5, -INF])
            b = torch.tensor([1, NAN, NAN, 1, 1, -0.0, 0.0, INF, -INF])
            if name in ("fmod", "remainder"):
                a, b = torch.tensor([NAN, 1, 5.5, -5.5, 6, -6]), torch.tensor([1, NAN, -2, 2, -3, 3])
            yield _form(f"{name} special", getattr(torch, name), a, b)
    for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8, torch.int16):
        v = Values("ints", dtype)
        low = 0 if dtype == torch.uint8 else -9
        a, b = v.ints(2, 11, dtype=dtype, low=low), v.ints(11, dtype=dtype, low=1)
        if dtype != torch.uint8:
            b[::2] *= -1
        else:
            a[0, :3] = torch.tensor([200, 255, 128])
        for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "minimum", "bitwise_and",
                     "bitwise_or", "bitwise_xor", "lt", "eq", "gt"):
            yield _form(f"{name} {dtype}", getattr(torch, name), a, b)
        for mode in ("floor", "trunc"):
            yield _form(f"div {mode} {dtype}", functools.partial(torch.div, rounding_mode=mode), a, b)
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            yield _form(f"{name} {dtype}", getattr(torch, name), a, (b.abs() % 6).to(dtype))
        yield _form(f"pow {dtype}", lambda x: x**2, a)
        yield _form(f"clamp {dtype}", lambda x: x.clamp(1, 5), a)
        yield _form(f"add scalar alpha {dtype}", lambda x, y: torch.add(x, y, alpha=3), a, b)
        yield _form(f"rsub {dtype}", lambda x: 3 - x, a)
        yield _form(f"remainder scalar {dtype}", lambda x: x % 4, a)
        yield _form(f"div scalar {dtype}", lambda x: x / 4, a)
        yield _form(f"compare scalar {dtype}", lambda x: x > 3, a)
    x = torch.cat([Values("x").floats(9), torch.tensor([NAN, INF, -INF])])
    for mode in ("floor", "trunc"):
        yield _form(f"div {mode}", functools.partial(torch.div, rounding_mode=mode), Values(1).floats(3, 5), Values(2).floats(5, low=0.4))
        yield _form(f"div {mode} negative", lambda a, m=mode: torch.div(a, -0.7, rounding_mode=m), Values(1).floats(3, 5))
    yield _form("clamp", lambda x: x.clamp(-1, 1), x)
    yield _form("clamp min", lambda x: x.clamp(min=-1), x)
    yield _form("clamp crossed", lambda x: x.clamp(1, -1), x)
    yield _form("clamp tensors", lambda x, a, b: torch.clamp(x, a, b), x, x.flip(0) - 1, x.flip(0) + 1)
    yield _form("where", torch.where, Values(1).bools(3, 1, 5), Values(1).floats(4, 1), Values(2).floats(5))
    yield _form("where scalars", lambda c: torch.where(c, 1.5, -2.0), Values(1).bools(3, 5), wide=False)
    yield _form("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.3), *(Values(i).floats(3, 5) for i in range(3)), mixed=True)
    yield _form("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.3), *(Values(i).floats(3, 5, low=0.3) for i in range(3)))
    yield _form("lerp", lambda a, b: torch.lerp(a, b, 0.3), Values(1).floats(5), Values(2).floats(5), mixed=True)
    yield _form("lerp tensor", torch.lerp, Values(1).floats(5), Values(2).floats(5), Values(3).floats(5), mixed=True)
    yield _form("pow scalar", lambda x: x**-1.5, Values(1).floats(5, low=0.2))
    yield _form("pow base", lambda x: 2.5**x, Values(1).floats(5))
    for n in (0, 0.5, 3, -2, 4):
        yield _form(f"pow {n}", lambda x, n=n: torch.pow(x, n), torch.tensor([0.5, 1.5, 2.0, 0.0]) if n == 0.5 else torch.tensor([-1.5, 2.0, 3]))
    yield _form("prelu", F.prelu, Values(1).floats(2, 3, 5), Values(2).floats(3))
    yield _form("glu", lambda x: F.glu(x, 1), Values(1).floats(2, 6, 5))
    yield _form("cross", lambda a, b: torch.linalg.cross(a, b), Values(1).floats(4, 3), Values(2).floats(4, 3), mixed=True)
    yield _form("dist", torch.dist, Values(1).floats(4, 3), Values(2).floats(4, 3))
    yield _form("cdist", torch.cdist, Values(1).floats(2, 4, 3), Values(2).floats(2, 5, 3), mixed=True)
    yield _form("cosine_similarity", F.cosine_similarity, Values(1).floats(4, 3), Values(2).floats(4, 3), mixed=True)
    yield _form("pairwise_distance", F.pairwise_distance, Values(1).floats(4, 3), Values(2).floats(4, 3), mixed=True)
    yield _form("isclose", torch.isclose, torch.tensor([1.0, 2, NAN, INF]), torch.tensor([1.0 + 1e-9, 2.1, NAN, INF]), wide=False)


def reductions() -> Iterator[TorchForm]:
    for dtype in NARROW:
        x = Values("reduce", dtype).floats(3, 5, 7, dtype=dtype, low=0.2)
        for name in ("sum", "mean", "prod", "amax", "amin", "var", "std", "logsumexp", "norm", "argmax", "argmin", "median", "any", "all"):
            for dims in (None, 1, (0, -1)):
                if (isinstance(dims, tuple) and name in ("prod", "argmax", "argmin", "median")) or (dims is None and name == "logsumexp"):
                    continue
                for keep in (False, True):
                    if dims is None:
                        if keep or (name in ("norm",) and dtype == torch.float16):
                            continue
                        yield _form(f"{name} {dtype}", getattr(torch, name), x)
                    else:
                        yield _form(f"{name} {dims} {keep} {dtype}", lambda x, f=getattr(torch, name), d=dims, k=keep: _first(f(x, dim=d, keepdim=k)), x)
        for correction in (0, 1, 2):
            yield _form(f"var correction {correction} {dtype}", lambda x, c=correction: torch.var(x, 1, correction=c), x)
            yield _form(f"std correction {correction} {dtype}", lambda x, c=correction: torch.std(x, (0, 2), correction=c, keepdim=True), x)
        yield _form(f"var_mean {dtype}", lambda x: torch.var_mean(x, (1, 2)), x)
        for p in (0, 1, 2, 3, INF, -INF, 0.5):
            yield _form(f"vector_norm {p} {dtype}", lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1), x)
        for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
            yield _form(f"{name} {dtype}", lambda x, f=getattr(torch, name): f(x, 1), x, mixed=True)
        for name in ("softmax", "log_softmax", "softmin"):
            for dim in (0, 1, -1):
                yield _form(f"{name} {dim} {dtype}", lambda x, f=getattr(F, name), d=dim: f(x, dim=d), x * 3 - 4,
                            mixed=name == "log_softmax")
        yield _form(f"normalize {dtype}", lambda x: F.normalize(x, dim=1), x)
        yield _form(f"max dim {dtype}", lambda x: torch.max(x, 1), x)
        yield _form(f"min dim {dtype}", lambda x: torch.min(x, -1), x)
        yield _form(f"aminmax {dtype}", lambda x: torch.aminmax(x, dim=1), x)
    near = 1000 + Values("near").floats(3, 31, low=-0.5, high=0.5)
    yield _form("var of near", lambda x: torch.var(x, 1), near, relative=1e-4)
    yield _form("std of near", lambda x: torch.std(x, 1), near, relative=1e-4)
    yield _form("softmax special", lambda x: F.softmax(x, -1), torch.tensor([[0, -INF, 3], [-INF, -INF, 2], [1e4, 1e4, -1e4]]))
    yield _form("logsumexp special", lambda x: torch.logsumexp(x, -1), torch.tensor([[200, 201.0], [-300, -301], [-INF, -INF], [INF, 1]]))
    nans = torch.tensor([[1, NAN, 2], [INF, 1, 2], [-INF, -INF, -INF]])
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        line = torch.tensor([[1, NAN, 2, NAN], [INF, 1, 2, INF], [-INF, -INF, -INF, -INF], [0, 3, -1, 3], [NAN] * 4])
        for name in ("argmax", "argmin"):
            for dims in (0, 1, None):
                yield _form(f"{name} nan {dims} {dtype}", lambda x, f=getattr(torch, name), d=dims: f(x, d), line.to(dtype))
            yield _form(f"{name} nan keep {dtype}", lambda x, f=getattr(torch, name): (f(x, 1, True), f(x, None, True)), line.to(dtype))
        for name in ("max", "min"):
            for dims in (0, 1):
                yield _form(f"{name} nan {dims} {dtype}", lambda x, f=getattr(torch, name), d=dims: (*f(x, d), *f(x, d, True)), line.to(dtype))
    for name in ("amax", "amin", "sum", "nansum", "nanmean"):
        yield _form(f"{name} special", lambda x, f=getattr(torch, name): f(x, 1), nans)
    for name in ("max", "min"):
        yield _form(f"{name} dim special", lambda x, f=getattr(torch, name): f(x, 1)[0], nans)
    for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool):
        x = Values("ints", dtype).ints(3, 5, low=0, dtype=dtype, high=1 if dtype == torch.bool else 9)
        if dtype == torch.uint8:
            x[0, :2] = torch.tensor([200, 255])
        for name in ("sum", "prod", "amax", "amin", "any", "all", "argmax", "cumsum", "argmin"):
            if not (dtype == torch.bool and name in ("argmax", "argmin")):
                yield _form(f"{name} {dtype}", lambda x, f=getattr(torch, name): f(x, 1), x)
        yield _form(f"count_nonzero {dtype}", lambda x: torch.count_nonzero(x, 1), x)
    ties = Values("ties").ints(5, 6, low=0, high=2).float()
    distinct = torch.randperm(30, generator=Values("d").generator).reshape(5, 6).float()
    yield _form("argmax ties", lambda x: torch.argmax(x, 1), ties)
    yield _form("argmin ties", lambda x: torch.argmin(x, 0), ties)
    for descending in (False, True):
        yield _form(f"sort stable {descending}", lambda x, d=descending: torch.sort(x, dim=0, descending=d, stable=True), ties)
        yield _form(f"sort {descending}", lambda x, d=descending: torch.sort(x, dim=1, descending=d), distinct)
        yield _form(f"argsort {descending}", lambda x, d=descending: torch.argsort(x, dim=1, descending=d), distinct)
        yield _form(f"topk {descending}", lambda x, d=descending: torch.topk(x, 3, dim=1, largest=d), distinct)
    yield _form("topk 0", lambda x: torch.topk(x, 2, dim=0), distinct.int())
    yield _form("kthvalue", lambda x: torch.kthvalue(x, 2, dim=1), distinct)
    yield _form("median", lambda x: torch.median(x, 1), distinct)
    yield _form("diff", lambda x: torch.diff(x, dim=1), distinct)
    yield _form("trace", torch.trace, distinct)
    yield _form("quantile", lambda x: torch.quantile(x, 0.3, dim=1), distinct)
    yield _form("bincount", lambda x: torch.bincount(x, minlength=5), torch.tensor([1, 2, 2]))


def _first(found: Any) -> Any:
    return found if isinstance(found, torch.Tensor) else found[0]


def norms() -> Iterator[TorchForm]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        v = Values("norm", dtype)
        x, s, b = v.floats(2, 6, 5, 3, dtype=dtype), v.floats(6, dtype=dtype), v.floats(6, dtype=dtype)
        m, q = v.floats(6, dtype=dtype), v.floats(6, dtype=dtype, low=0.1)
        yield _form(f"layer_norm {dtype}", lambda x, s, b: F.layer_norm(x, (3,), s, b), x, s[:3], b[:3], mixed=True)
        yield _form(f"layer_norm 2 {dtype}", lambda x: F.layer_norm(x, (5, 3), eps=0.1), x, mixed=True)
        yield _form(f"rms_norm {dtype}", lambda x, s: F.rms_norm(x, (3,), s, 1e-5), x, s[:3], mixed=True)
        yield _form(f"rms_norm eps {dtype}", lambda x: F.rms_norm(x, (5, 3)), x, mixed=True)
        for groups in (1, 3, 6):
            yield _form(f"group_norm {groups} {dtype}", lambda x, s, b, g=groups: F.group_norm(x, g, s, b), x, s, b, mixed=True)
        yield _form(f"instance_norm {dtype}", lambda x, s, b: F.instance_norm(x, weight=s, bias=b), x, s, b, mixed=True)
        yield _form(f"batch_norm {dtype}", lambda x, m, q, s, b: F.batch_norm(x, m, q, s, b), x, m, q, s, b, mixed=True)
        yield _form(f"batch_norm plain {dtype}", lambda x, m, q: F.batch_norm(x, m, q, eps=0.1), x, m, q, mixed=True)
        yield _form(f"batch_norm training {dtype}", lambda x: F.batch_norm(x, None, None, training=True), x, mixed=True)
        for size in (2, 3, 5):
            yield _form(f"local_response_norm {size} {dtype}", lambda x, n=size: F.local_response_norm(x, n, 0.3, 0.6, 1.2), x)
    near = 1000 + Values("near").floats(2, 4, 31, low=-0.5, high=0.5)
    yield _form("layer_norm near", lambda x: F.layer_norm(x, (31,)), near, relative=5e-4, mixed=True)
    yield _form("instance_norm near", F.instance_norm, near, relative=5e-4, mixed=True)
    yield _form("group_norm near", lambda x: F.group_norm(x, 2), near, relative=5e-4, mixed=True)


def losses() -> Iterator[TorchForm]:
    v = Values("loss")
    x, y = v.floats(3, 5), v.floats(3, 5)
    p, t = v.floats(3, 5, low=0.05, high=0.95), v.floats(3, 5, low=0, high=1)
    target, deep, places = torch.tensor([1, 0, 4]), v.floats(2, 5, 3), torch.tensor([[0, 1, 4], [2, 2, 3]])
    w = v.floats(5, low=0.2)
    for reduction in ("mean", "sum", "none"):
        r = {"reduction": reduction}
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss"):
            a, b = (x, torch.sign(y)) if name == "soft_margin_loss" else (x, y.abs())
            yield _form(f"{name} {reduction}", functools.partial(getattr(F, name), **r), a, b, mixed=True)
        yield _form(f"smooth_l1 beta {reduction}", functools.partial(F.smooth_l1_loss, beta=0.3, **r), x, y, mixed=True)
        yield _form(f"binary_cross_entropy {reduction}", functools.partial(F.binary_cross_entropy, **r), p, t, mixed=True)
        yield _form(f"bce logits {reduction}", functools.partial(F.binary_cross_entropy_with_logits, **r), x * 10, t, mixed=True)
        yield _form(f"kl_div {reduction}", functools.partial(F.kl_div, **r), p.log(), t, mixed=True)
        for weights in (None, w):
            for ignore in (-100, 4):
                tail = () if weights is None else (weights,)
                def loss(a: Any, b: Any, *c: Any, f: Any, i: int = ignore, r: Any = r) -> Any:
                    return f(a, b, *c, ignore_index=i, **r)
                for name in ("nll_loss", "cross_entropy"):
                    k = functools.partial(loss, f=getattr(F, name))
                    yield _form(f"{name} {reduction} {ignore} {len(tail)}", k, x, target, *tail, mixed=True)
                    yield _form(f"{name} deep {reduction} {ignore} {len(tail)}", k, deep, places, *tail, mixed=True)
        yield _form(f"cross_entropy smooth {reduction}", functools.partial(F.cross_entropy, label_smoothing=0.1, **r), x, target, mixed=True)
        yield _form(f"cross_entropy soft {reduction}", functools.partial(F.cross_entropy, **r), x, t, mixed=True)
        yield _form(f"margin_ranking {reduction}", lambda a, b, r=r: F.margin_ranking_loss(a, b, torch.ones(()), **r), x, y, mixed=True)
        yield _form(f"triplet {reduction}", functools.partial(F.triplet_margin_loss, **r), x, y, p, mixed=True)
        yield _form(f"cosine_embedding {reduction}", functools.partial(F.cosine_embedding_loss, **r), x, y, torch.tensor([1, -1, 1]), mixed=True)


def pools() -> Iterator[TorchForm]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = Values("pool", dtype).floats(2, 3, 9, 8, dtype=dtype)
        for kernel, stride, pad, dilation in ((3, 2, 1, 1), ((3, 2), None, 0, 1), (2, 2, 0, 2), ((2, 3), (3, 2), (1, 0), (1, 2)), (3, 3, 1, 1)):
            for ceil in (False, True):
                yield _form(f"max_pool2d {kernel} {stride} {pad} {dilation} {ceil} {dtype}",
                            lambda x, a=(kernel, stride, pad, dilation, ceil): F.max_pool2d(x, *a), x - 4)
                yield _form(f"max_pool2d indices {kernel} {stride} {pad} {dilation} {ceil} {dtype}",
                            lambda x, a=(kernel, stride, pad, dilation, ceil): F.max_pool2d(x, *a, return_indices=True), x - 4)
                if dilation == 1:
                    for include in (False, True):
                        yield _form(f"avg_pool2d {kernel} {stride} {pad} {ceil} {include} {dtype}",
                                    lambda x, a=(kernel, stride, pad, ceil, include): F.avg_pool2d(x, *a), x, mixed=True)
                    yield _form(f"avg_pool2d divisor {kernel} {stride} {pad} {ceil} {dtype}",
                                lambda x, a=(kernel, stride, pad, ceil, True, 5): F.avg_pool2d(x, *a), x, mixed=True)
    x = Values("pool").floats(2, 3, 9, 8)
    for ceil in (False, True):
        yield _form(f"max_pool1d {ceil}", lambda x, c=ceil: F.max_pool1d(x, 3, 2, 1, ceil_mode=c), x[..., 0])
        yield _form(f"avg_pool1d {ceil}", lambda x, c=ceil: F.avg_pool1d(x, 2, 2, 1, ceil_mode=c), x[..., 0], mixed=True)
        y = Values("pool3").floats(1, 2, 5, 6, 7)
        yield _form(f"max_pool3d {ceil}", lambda x, c=ceil: F.max_pool3d(x, 3, 2, 1, ceil_mode=c), y)
        yield _form(f"avg_pool3d {ceil}", lambda x, c=ceil: F.avg_pool3d(x, 3, 2, 1, ceil_mode=c), y, mixed=True)
        yield _form(f"lp_pool2d {ceil}", lambda x, c=ceil: F.lp_pool2d(x, 2, 2, 2, ceil_mode=c), x.abs(), mixed=True)
    for size in (1, 2, 3, 5, (4, 3), (None, 2), 8):
        yield _form(f"adaptive_avg_pool2d {size}", lambda x, s=size: F.adaptive_avg_pool2d(x, s), x, mixed=True)
        yield _form(f"adaptive_max_pool2d {size}", lambda x, s=size: F.adaptive_max_pool2d(x, s), x)
    for size in (1, 3, 4, 9):
        yield _form(f"adaptive_avg_pool1d {size}", lambda x, s=size: F.adaptive_avg_pool1d(x, s), x[..., 0], mixed=True)
        yield _form(f"adaptive_max_pool1d {size}", lambda x, s=size: F.adaptive_max_pool1d(x, s), x[..., 0])
        yield _form(f"adaptive_avg_pool3d {size}", lambda x, s=size: F.adaptive_avg_pool3d(x, s), y, mixed=True)
    yield _form("max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2, 2, output_size=(9, 8)), x)
    for scale in (2, (1.7, 2.3), 0.6):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            yield _form(f"interpolate {mode} scale {scale}", lambda x, m=mode, s=scale: F.interpolate(x, scale_factor=s, mode=m), x, mixed=True, relative=1e-5)
    for size in ((13, 5), (4, 3), (9, 16), (1, 1)):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
            yield _form(f"interpolate {mode} {size}", lambda x, m=mode, s=size: F.interpolate(x, s, mode=m), x, mixed=True, relative=1e-5)
        for mode in ("bilinear", "bicubic"):
            yield _form(f"interpolate {mode} aligned {size}", lambda x, m=mode, s=size: F.interpolate(x, s, mode=m, align_corners=True), x, mixed=True, relative=1e-5)
            yield _form(f"interpolate {mode} antialias {size}", lambda x, m=mode, s=size: F.interpolate(x, s, mode=m, antialias=True), x, mixed=True, relative=1e-5)
    for mode in ("nearest", "linear"):
        yield _form(f"interpolate 1d {mode}", lambda x, m=mode: F.interpolate(x, 13, mode=m), x[..., 0], mixed=True, relative=1e-5)
    for mode in ("nearest", "trilinear"):
        yield _form(f"interpolate 3d {mode}", lambda x, m=mode: F.interpolate(x, (7, 4, 9), mode=m), y, mixed=True, relative=1e-5)
    for align in (False, True):
        grid = Values("grid", align).floats(2, 3, 5, 2, low=-1.4, high=1.4)
        for padding in ("zeros", "border", "reflection"):
            for mode in ("bilinear", "nearest", "bicubic"):
                yield _form(f"grid_sample {mode} {padding} {align}", lambda x, g, m=mode, p=padding, a=align: F.grid_sample(x, g, m, p, a), x, grid,
                            mixed=True, relative=1e-5)
        yield _form(f"affine_grid {align}", lambda t, a=align: F.affine_grid(t, (2, 3, 5, 4), align_corners=a), Values(1).floats(2, 2, 3), mixed=True)
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield _form(f"pad {mode}", lambda x, m=mode: F.pad(x, (2, 1, 0, 3), mode=m), x)
        yield _form(f"pad 1d {mode}", lambda x, m=mode: F.pad(x, (2, 3), mode=m), x[..., 0])
        yield _form(f"pad 3d {mode}", lambda x, m=mode: F.pad(x, (2, 1, 0, 3, 1, 1), mode=m), y)
        yield _form(f"pad negative {mode}", lambda x, m=mode: F.pad(x, (-1, 2, 1, -2), mode=m), x)
    yield _form("pad value", lambda x: F.pad(x, (1, 2, -1, 0, 1, 0), value=-INF), x)
    yield _form("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), Values(1).floats(2, 8, 3, 5))
    yield _form("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), Values(1).floats(2, 3, 4, 6))
    yield _form("channel_shuffle", lambda x: F.channel_shuffle(x, 2), Values(1).floats(2, 8, 3, 5))
    yield _form("unfold", lambda x: F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1)), x)
    yield _form("fold", lambda x: F.fold(x, (5, 6), (2, 3), (1, 1), (1, 0), (2, 1)), Values(1).floats(2, 12, 20), mixed=True)
    yield _form("tensor unfold", lambda x: x.unfold(2, 4, 2), x)


def products() -> Iterator[TorchForm]:
    for dtype in NARROW:
        for a, b in (((3, 5), (5, 7)), ((2, 1, 3, 5), (4, 5, 7)), ((5,), (5, 7)), ((3, 5), (5,)), ((5,), (5,)), ((2, 3, 5), (5,))):
            v = Values("matmul", a, b, dtype)
            yield _form(f"matmul {a} {b} {dtype}", torch.matmul, v.floats(*a, dtype=dtype), v.floats(*b, dtype=dtype), mixed=True)
        v = Values("p", dtype)
        yield _form(f"bmm {dtype}", torch.bmm, v.floats(2, 3, 5, dtype=dtype), v.floats(2, 5, 7, dtype=dtype), mixed=True)
        yield _form(f"addmm {dtype}", lambda a, b, c: torch.addmm(a, b, c, beta=0.3, alpha=1.7), v.floats(7, dtype=dtype), v.floats(3, 5, dtype=dtype),
                    v.floats(5, 7, dtype=dtype), mixed=True)
        yield _form(f"baddbmm {dtype}", lambda a, b, c: torch.baddbmm(a, b, c, beta=0.3, alpha=1.7), v.floats(3, 7, dtype=dtype), v.floats(2, 3, 5, dtype=dtype),
                    v.floats(2, 5, 7, dtype=dtype), mixed=True)
        yield _form(f"linear {dtype}", F.linear, v.floats(2, 3, 5, dtype=dtype), v.floats(7, 5, dtype=dtype), v.floats(7, dtype=dtype), mixed=True)
        x, w, b = v.floats(2, 4, 8, 7, dtype=dtype), v.floats(6, 4, 3, 2, dtype=dtype), v.floats(6, dtype=dtype)
        for stride, pad, dilation, groups in ((1, 0, 1, 1), (2, (1, 0), 1, 1), (1, 2, 2, 1), ((2, 1), 1, (1, 2), 2), (1, "same", 1, 1), (1, "same", 2, 1),
                                              (1, "valid", 1, 2)):
            yield _form(f"conv2d {stride} {pad} {dilation} {groups} {dtype}",
                        lambda x, w, b, a=(stride, pad, dilation, groups): F.conv2d(x, w, b, *a), x, w[:, : 4 // groups], b, mixed=True)
        yield _form(f"conv2d depthwise {dtype}", lambda x, w: F.conv2d(x, w, groups=4, padding=1), x, v.floats(8, 1, 3, 3, dtype=dtype), mixed=True)
        yield _form(f"conv1d {dtype}", lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2), x[..., 0], w[..., 0], b, mixed=True)
        yield _form(f"conv3d {dtype}", lambda x, w: F.conv3d(x, w, None, (2, 1, 1), (0, 1, 1)), v.floats(1, 2, 5, 6, 4, dtype=dtype),
                    v.floats(3, 2, 2, 3, 2, dtype=dtype), mixed=True)
        for stride, pad, more, groups, dilation in ((1, 0, 0, 1, 1), (2, 1, 1, 1, 1), ((3, 2), (0, 1), (2, 0), 1, 1), (2, 0, 0, 2, 1), (2, 1, 1, 1, 2), (2, 2, 1, 2, 2)):
            yield _form(f"conv_transpose2d {stride} {pad} {more} {groups} {dilation} {dtype}",
                        lambda x, w, a=(stride, pad, more, groups, dilation): F.conv_transpose2d(x, w, None, *a), x, v.floats(4, 3, 3, 2, dtype=dtype), mixed=True)
        yield _form(f"conv_transpose1d {dtype}", lambda x, w: F.conv_transpose1d(x, w, None, 2, 1), x[..., 0], v.floats(4, 3, 3, dtype=dtype), mixed=True)
        yield _form(f"bilinear {dtype}", F.bilinear, v.floats(3, 5, dtype=dtype), v.floats(3, 4, dtype=dtype), v.floats(2, 5, 4, dtype=dtype), mixed=True)
    yield _form("conv_transpose3d", lambda x, w: F.conv_transpose3d(x, w, None, 2, 1), Values(1).floats(1, 2, 3, 4, 3), Values(2).floats(2, 3, 2, 3, 2), mixed=True)
    for dtype in (torch.int32, torch.int64, torch.int8):
        yield _form(f"matmul {dtype}", torch.matmul, Values(1).ints(3, 5, dtype=dtype), Values(2).ints(5, 7, dtype=dtype))
    for equation, shapes in (("ij,jk->ik", ((3, 5), (5, 7))), ("bij,bjk->bik", ((2, 3, 5), (2, 5, 7))), ("i,j->ij", ((3,), (5,))), ("ii->i", ((4, 4),)),
                             ("ii", ((4, 4),)), ("...ij,...jk->...ik", ((2, 3, 5), (2, 5, 7))), ("ij,ij->", ((3, 5), (3, 5))),
                             ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 7, 5))), ("ijk->j", ((3, 4, 5),)), ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5)))):
        v = Values(equation)
        yield _form(f"einsum {equation}", lambda *x, e=equation: torch.einsum(e, *x), *(v.floats(*s) for s in shapes), mixed=True)
    yield _form("tensordot", lambda a, b: torch.tensordot(a, b, 2), Values(1).floats(3, 4, 5), Values(2).floats(4, 5, 2), mixed=True)
    yield _form("outer", torch.outer, Values(1).floats(3), Values(2).floats(5))
    yield _form("kron", torch.kron, Values(1).floats(3, 2), Values(2).floats(2, 5))
    yield _form("vdot", torch.dot, Values(1).floats(9), Values(2).floats(9), mixed=True)
    yield _form("mv", torch.mv, Values(1).floats(9, 4), Values(2).floats(4), mixed=True)
    yield _form("chain", lambda a, b, c: torch.linalg.multi_dot([a, b, c]), Values(1).floats(2, 3), Values(2).floats(3, 4), Values(2).floats(4, 5), mixed=True)
    yield _form("matrix_power", lambda a: torch.linalg.matrix_power(a, 3), Values(1).floats(4, 4), mixed=True)


def moves() -> Iterator[TorchForm]:
    x = Values("moves").floats(3, 4, 5)
    v = Values("index")
    singles: dict[str, Callable[[Any], Any]] = {
        "roll": lambda x: torch.roll(x, (1, -2), (0, 2)), "roll flat": lambda x: torch.roll(x, 7), "flip": lambda x: x.flip(0, 2),
        "pad that cancels": lambda x: F.pad(x, (1, -1)), "pads that cancel": lambda x: F.pad(x, (-1, 1, 2, -2), value=2.0),
        "zero pad": torch.nn.ZeroPad2d((1, -1, -2, 2)), "negative pads": lambda x: F.pad(x, (-1, -1, 0, -3)),
        "reflected negative pads": lambda x: F.pad(x, (2, -2), mode="reflect"),
        "fliplr": torch.fliplr, "rot90": lambda x: torch.rot90(x, 1, (1, 2)), "repeat": lambda x: x.repeat(2, 1, 3),
        "tile": lambda x: x.tile(2, 3), "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
        "repeat_interleave of all": lambda x: x.repeat_interleave(2), "permute": lambda x: x.permute(2, 0, 1),
        "narrow": lambda x: x.narrow(1, 1, 2), "steps": lambda x: x[::2, 1::2, ::3], "negative": lambda x: x[-1, :, -3:],
        "chunk": lambda x: x.chunk(3, 2), "split": lambda x: x.split([1, 3], 1), "tensor_split": lambda x: x.tensor_split(3, 2),
        "unbind": lambda x: x.unbind(1), "stack": lambda x: torch.stack([x, x + 1], 1), "cat": lambda x: torch.cat([x, x[:1]], 0),
        "tril": lambda x: x.tril(1), "triu": lambda x: x.triu(-1), "diagonal": lambda x: x.diagonal(1, 1, 2), "diag_embed": lambda x: torch.diag_embed(x[0]),
        "diag": lambda x: torch.diag(x[0]), "movedim": lambda x: x.movedim(0, 2), "swapaxes": lambda x: x.swapaxes(0, 1), "unflatten": lambda x: x.unflatten(1, (2, 2)),
        "flatten": lambda x: x.flatten(1), "squeeze": lambda x: x[:, :1].squeeze(), "expand": lambda x: x[:, :1].expand(3, 7, 5),
        "select": lambda x: x.select(1, -2), "new_zeros": lambda x: x.new_zeros(3, 2) + x[0, :3, :2], "full_like": lambda x: torch.full_like(x, 1.5),
        "arange": lambda x: x[0, 0] + torch.arange(5), "linspace": lambda x: x[0, 0] + torch.linspace(-1, 2, 5), "one_hot": lambda x: F.one_hot((x[0] * 0).long() + 2, 5),
        "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"), "eye": lambda x: x[:, :, :4] @ torch.eye(4), "index list": lambda x: x[[0, 2, 0]],
        "as_strided": lambda x: torch.as_strided(x, (2, 3), (5, 2), 1), "cartesian": lambda x: torch.cartesian_prod(x[0, 0], x[0, :, 0]), "block_diag": lambda x: torch.block_diag(x[0], x[1, :2]),
        "vander": lambda x: torch.vander(x[0, 0], 3), "constant_pad_nd": lambda x: torch.constant_pad_nd(x, (1, 2), 3.0), "masked by own": lambda x: x.masked_fill(x > 0, -1.0),
        "slice assign": lambda x: _assign(x), "index_fill": lambda x: x.index_fill(1, torch.tensor([0, 2]), -2.0), "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0, 1.5])),
        "searchsorted": lambda x: torch.searchsorted(torch.tensor([-1.0, 0, 1.5]), x), "hstack": lambda x: torch.hstack([x, x]), "histc": lambda x: torch.histc(x, 5, -3, 3),
        "nonzero": lambda x: x.nonzero(), "unique": lambda x: torch.unique(x), "masked_select": lambda x: x[x > 0],
    }  # fmt: skip
    for name, function in singles.items():
        yield _form(name, function, x)
    index = torch.tensor([[[0, 1, 2, 1, 0]], [[1, 0, 0, 2, 2]]])
    yield _form("gather", lambda x, i: torch.gather(x, 0, i), x, index)
    yield _form("index_select", lambda x, i: x.index_select(1, i), x, torch.tensor([3, 0, 0]))
    yield _form("index tensors", lambda x, i, j: x[i, :, j], x, torch.tensor([0, -1]), torch.tensor([3, -5]))
    yield _form("index tensors together", lambda x, i, j: x[:, i, j], x, torch.tensor([[0, -1], [2, 1]]), torch.tensor([3, -5]))
    yield _form("take", lambda x, i: torch.take(x, i), x, torch.tensor([3, -5, 59]))
    yield _form("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), x, torch.tensor([[[3]], [[0]], [[1]]]))
    y = v.floats(2, 1, 5)
    yield _form("scatter", lambda x, i, y: x.scatter(0, i, y), x, torch.tensor([[[0, 1, 2, 1, 0]], [[1, 0, 0, 2, 2]]]), y)
    yield _form("scatter value", lambda x, i: x.scatter(0, i, 1.5), x, index)
    yield _form("scatter_add", lambda x, i, y: x.scatter_add(0, i, y), x, index * 0 + 1, y)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            yield _form(f"scatter_reduce {reduce} {own}", lambda x, i, y, r=reduce, o=own: x.scatter_reduce(0, i, y, r, include_self=o), x, index * 0 + 1, y)
    yield _form("index_add", lambda x, i, y: x.index_add(1, i, y, alpha=0.5), x, torch.tensor([3, 0, 0]), v.floats(3, 3, 5), mixed=True)
    yield _form("index_copy", lambda x, i, y: x.index_copy(1, i, y), x, torch.tensor([3, 0]), v.floats(3, 2, 5))
    for accumulate in (False, True):
        yield _form(f"index_put {accumulate}", lambda x, i, j, y, a=accumulate: x.index_put((i, j), y, accumulate=a), x,
                    torch.tensor([0, -1, 0] if accumulate else [0, -1, 1]), torch.tensor([1, -2, 1]), v.floats(3, 5))
        yield _form(f"index_put rows {accumulate}", lambda x, i, y, a=accumulate: x.index_put((i,), y, accumulate=a), x, torch.tensor([0, -1]), v.floats(2, 4, 5))
        yield _form(f"index_put hole {accumulate}", lambda x, i, y, a=accumulate: x.index_put((None, i), y, accumulate=a), x, torch.tensor([0, -1]), v.floats(3, 2, 5))
    yield _form("masked_fill", lambda x, m: x.masked_fill(m, -INF), x, v.bools(4, 5))
    yield _form("masked_scatter", lambda x, m, y: x.masked_scatter(m, y), x, v.bools(3, 4, 5), v.floats(60))
    yield _form("index_put mask", _put_mask, x, v.bools(3, 4, 5))
    table = v.floats(7, 3)
    ids = torch.tensor([[0, 6, 2, 2], [1, 5, 3, 0]])
    yield _form("embedding", F.embedding, ids, table)
    yield _form("embedding padding", lambda i, t: F.embedding(i, t, padding_idx=2), ids, table)
    for mode in ("sum", "mean", "max"):
        yield _form(f"embedding_bag {mode}", lambda i, t, m=mode: F.embedding_bag(i, t, mode=m), ids, table, mixed=True)
        yield _form(f"embedding_bag offsets {mode}", lambda i, t, o, m=mode: F.embedding_bag(i, t, o, mode=m), ids[0], table, torch.tensor([0, 1]), mixed=True)
    yield _form("one_hot", lambda i: F.one_hot(i, 7), ids)
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16):
        z = v.ints(3, 4, low=0, high=200).to(dtype)
        yield _form(f"movement {dtype}", lambda z: (z.flip(0), z.roll(1, 1), z.tril(), torch.cat([z, z]), z.t()[1:]), z, wide=False)


def _assign(x: Any) -> Any:
    y = x.clone()
    y[1:, ::2] = 3.0
    y[0, 1] += x[0, 2]
    return y


def _put_mask(x: Any, m: Any) -> Any:
    y = x.clone()
    y[m] = 1.5
    return y


def modules() -> Iterator[TorchForm]:
    torch.manual_seed(3)
    x = torch.randn(5, 3, 4)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        for settings in ({}, {"batch_first": True}, {"bidirectional": True}, {"num_layers": 2}, {"bias": False}, {"num_layers": 2, "bidirectional": True}):
            yield _form(f"{kind.__name__} {settings}", kind(4, 6, **settings).eval(), x, mixed=True)
    yield _form("RNN relu", torch.nn.RNN(4, 6, nonlinearity="relu").eval(), x, mixed=True)
    yield _form("LSTM proj", torch.nn.LSTM(4, 6, proj_size=2).eval(), x, mixed=True)
    for kind in (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell):
        yield _form(kind.__name__, kind(4, 6).eval(), x[0], mixed=True)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    y = torch.randn(2, 5, 8)
    mask = torch.ones(5, 5).triu(1).bool()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    yield _form("MultiheadAttention", _Attention(attention), y, mixed=True)
    yield _form("MultiheadAttention mask", _Attention(attention, mask=mask), y, mixed=True)
    yield _form("MultiheadAttention padding", _Attention(attention, padding=padding), y, mixed=True)
    yield _form("MultiheadAttention weights", _Attention(attention, weights=True), y, mixed=True)
    q, k, u = (Values(i).floats(2, 3, 5, 8) for i in range(3))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        a = (q.to(dtype), k.to(dtype), u.to(dtype))
        yield _form(f"attention {dtype}", F.scaled_dot_product_attention, *a, mixed=True)
        yield _form(f"attention causal {dtype}", lambda q, k, u: F.scaled_dot_product_attention(q, k, u, is_causal=True), *a, mixed=True)
    yield _form("attention scale", lambda q, k, u: F.scaled_dot_product_attention(q, k, u, scale=0.1), q, k, u, mixed=True)
    yield _form("attention bias", lambda q, k, u, m: F.scaled_dot_product_attention(q, k, u, m), q, k, u, Values(9).floats(5, 5), mixed=True)
    for kind, arguments in ((torch.nn.TransformerEncoderLayer, (8, 2, 16)), (torch.nn.TransformerDecoderLayer, (8, 2, 16))):
        layer = kind(*arguments, batch_first=True).eval()
        yield _form(kind.__name__, layer, *([y] if kind is torch.nn.TransformerEncoderLayer else [y, y * 0.5]), mixed=True)


class _Attention(torch.nn.Module):
    def __init__(self, attention: torch.nn.Module, mask: Any = None, padding: Any = None, weights: bool = False) -> None:
        super().__init__()
        self.attention, self.mask, self.padding, self.weights = attention, mask, padding, weights

    def forward(self, x: Any) -> Any:
        found = self.attention(x, x, x, attn_mask=self.mask, key_padding_mask=self.padding, need_weights=self.weights)
        return found if self.weights else found[0]


GROUPS = (unary, binary, reductions, norms, losses, pools, products, moves, modules)
