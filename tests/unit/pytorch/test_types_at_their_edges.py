"""Operators × types × numbers at the edges of the types, against PyTorch itself: equal to the bit, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

from tests.unit.pytorch.functions import Functions  # noqa: E402

import motet  # noqa: E402
from motet.errors import CompileError  # noqa: E402

F = torch.nn.functional

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = ("bool", *INTEGERS, *FLOATS)

Operator = Callable[..., Any]


def edges(kind: str) -> Any:
    """Numbers of a type, 24 of them."""
    dtype = getattr(torch, kind)
    if kind == "bool":
        return torch.tensor([False, True, True] * 8)
    if kind in INTEGERS:
        info = torch.iinfo(dtype)
        wanted = [0, 1, -1, 2, 3, 7, info.min, info.max, info.min + 1, info.max - 1, 100, 127, 128, 200, 255,
                  2**15 + 1, 2**24 + 1, -(2**24) - 1, 2**31 - 1, 2**31 + 1, 2**53 + 1, -(2**53) - 1, 2**62, -5]
        return torch.tensor([value if info.min <= value <= info.max else 5 for value in wanted], dtype=dtype)
    info = torch.finfo(dtype)
    wanted = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 7.0, 1e-3, info.max, info.min, info.tiny, -info.tiny,
              info.tiny / 4, info.eps, 1 + info.eps, 2.0**24 + 1, float("inf"), -float("inf"), float("nan"),
              200.0, -5.0, 1 / 3]  # fmt: skip
    return torch.tensor(wanted, dtype=torch.float64).to(dtype)


def not_tiny(x: Any) -> Any:
    return torch.where(x.abs() < 0.25, torch.ones_like(x), x)


def less_than_least(x: Any) -> Any:
    """Divisors for integers: no 0, and no -1, by which the least number has no quotient."""
    least = x == 0 if x.dtype == torch.uint8 else (x == 0) | (x == -1)
    return torch.where(least, torch.full_like(x, 3), x)


ANY: dict[str, Operator] = {
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([y, x], 1),
    "where": lambda x, y: torch.where(x == y, x, y),
    "flip": lambda x, y: x.flip(0),
    "roll": lambda x, y: x.roll(5),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "eq": lambda x, y: x == y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "maximum": lambda x, y: torch.maximum(x, y),
    "minimum": lambda x, y: torch.minimum(x, y),
    "amax": lambda x, y: x.reshape(4, 6).amax(1),
    "amin": lambda x, y: x.reshape(4, 6).amin(0),
    "any": lambda x, y: x.reshape(4, 6).any(1),
    "all": lambda x, y: x.reshape(4, 6).all(1),
    "masked_fill": lambda x, y: x.masked_fill(y == 1, 1),
    "gather": lambda x, y: x.gather(0, torch.arange(23, -1, -1)),
    "to int64": lambda x, y: x.nan_to_num(0, 0, 0).clamp(-3, 3).to(torch.int64) if x.is_floating_point() else x.long(),
    "to float64": lambda x, y: x.to(torch.float64),
    "to float32": lambda x, y: x.to(torch.float32),
    "to float16": lambda x, y: x.to(torch.float16),
    "to bfloat16": lambda x, y: x.to(torch.bfloat16),
    "to bool": lambda x, y: x.to(torch.bool),
}
NUMBERS: dict[str, Operator] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "sign": lambda x, y: x.sign(),
    "add 1": lambda x, y: x + 1,
    "mul 3": lambda x, y: x * 3,
    "rsub": lambda x, y: 1 - x,
    "clamp": lambda x, y: x.clamp(1, 100),
    "square": lambda x, y: x * x,
    "sum": lambda x, y: x.reshape(4, 6)[:, :2].sum(1),
    "prod": lambda x, y: x.reshape(4, 6)[:, :2].prod(1),
    "argmax": lambda x, y: x.reshape(4, 6)[:3].argmax(1),
    "cumsum": lambda x, y: x.reshape(12, 2).cumsum(1),
    "pad with a number": lambda x, y: F.pad(x, (1, 2), value=100),
    "pad with 200": lambda x, y: F.pad(x, (1, 2), value=200),
    "full of 200": lambda x, y: torch.full_like(x, 200),
    "filled with 200": lambda x, y: x.masked_fill(y == 1, 200),
    "eq 200": lambda x, y: x == 200,
    "lt 200": lambda x, y: x < 200,
    "where 200": lambda x, y: torch.where(y == 1, x, 200),
    "relu": lambda x, y: torch.relu(x),
}
WHOLE: dict[str, Operator] = {
    "floor_divide": lambda x, y: x // less_than_least(y),
    "remainder": lambda x, y: x % less_than_least(y),
    "fmod": lambda x, y: torch.fmod(x, less_than_least(y)),
    "trunc quotient": lambda x, y: torch.div(x, less_than_least(y), rounding_mode="trunc"),
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
    "power 2": lambda x, y: x**2,
    "power 3": lambda x, y: x**3,
    "floor_divide 7": lambda x, y: x // 7,
    "remainder 7": lambda x, y: x % 7,
    "shift": lambda x, y: x << 1,
    "shift right": lambda x, y: x >> 1,
}
REAL: dict[str, Operator] = {
    "div": lambda x, y: x / y,
    # PyTorch has no number where the quotient is infinite.
    "fmod": lambda x, y: torch.fmod(x.clamp(-1e4, 1e4), not_tiny(y)),
    "fmod of infinities": lambda x, y: torch.fmod(x, torch.where(y == 1, 3.0, torch.inf).to(y.dtype)),
    "remainder": lambda x, y: torch.remainder(x.clamp(-1e4, 1e4), not_tiny(y)),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil(),
    "trunc": lambda x, y: x.trunc(),
    "round": lambda x, y: x.round(),
    "isnan": lambda x, y: torch.isnan(x),
    "isinf": lambda x, y: torch.isinf(x),
    "copysign": lambda x, y: torch.copysign(x, y),
    "sqrt": lambda x, y: x.abs().sqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
}


def operators(kind: str) -> dict[str, Operator]:
    found = dict(ANY)
    if kind == "bool":
        return found | {key: WHOLE[key] for key in ("and", "or", "xor", "not")}
    found |= NUMBERS | (WHOLE if kind in INTEGERS else REAL)
    return {name: found[name] for name in found if kind != "int8" or not name.endswith("200")}  # PyTorch wraps 200


MIXED: dict[str, Operator] = {
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(torch.arange(24) % 2 == 0, x, y),
    "lt": lambda x, y: x < y,
    "eq": lambda x, y: x == y,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "maximum": lambda x, y: torch.maximum(x, y.to(torch.result_type(x, y))),
}


class Several(torch.nn.Module):
    """The results of several operators."""

    def __init__(self, chosen: list[Operator]) -> None:
        super().__init__()
        self._chosen = chosen

    def forward(self, x: Any, y: Any) -> Any:
        return tuple(operator(x, y) for operator in self._chosen)


def results(chosen: dict[str, Operator], x: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """The results by name of those that are not refused; halves of what is refused are tried again."""
    try:
        session = motet.load(motet.compile(Several(list(chosen.values())), inputs=[x, y]))
    except CompileError:
        names = list(chosen)
        half = len(names) // 2
        if half:
            yield from results({name: chosen[name] for name in names[:half]}, x, y)
            yield from results({name: chosen[name] for name in names[half:]}, x, y)
        return
    found = session(x, y)
    yield from zip(chosen, found if isinstance(found, tuple) else (found,), strict=True)


# Whose zeros have no certain sign: PyTorch's own depends on the processor, or the sign is lost here (trunc).
_ZEROS = frozenset(["relu", "maximum", "minimum", "amax", "amin", "clamp", "trunc", "sum", "remainder"])


def same(name: str, found: Any, wanted: Any) -> bool:
    """Equal to the bit, where all NaN are one."""
    found = torch.as_tensor(found)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if not wanted.is_floating_point():
        return bool((found == wanted).all())
    nan = torch.isnan(wanted)
    equal = (found == wanted) & ((torch.signbit(found) == torch.signbit(wanted)) | (name in _ZEROS))
    return bool((torch.isnan(found) == nan).all() and (equal | nan).all())


def told(found: Any, wanted: Any, x: Any, y: Any) -> str:
    """The first places where results differ, with the operands if there is one of each for a result."""
    found = torch.as_tensor(found)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {list(found.shape)} for {wanted.dtype} {list(wanted.shape)}"
    places = [
        index for index, (one, other) in enumerate(zip(found.flatten(), wanted.flatten(), strict=True))
        if not same("", one, other)
    ]
    operands = [each.tolist() if each.shape == wanted.shape else "…" for each in (x, y)]
    return ", ".join(
        f"{found.flatten()[place].item()} for {wanted.flatten()[place].item()}"
        + (f" of {operands[0][place]} and {operands[1][place]}" if "…" not in operands else "")
        for place in places[:4]
    )


def check(chosen: dict[str, Operator], x: Any, y: Any, refused: int) -> None:
    possible: dict[str, Operator] = {}
    for name, operator in chosen.items():
        try:
            operator(x, y)
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # PyTorch has no such operator of this type
        possible[name] = operator
    found = dict(results(possible, x, y))
    wrong = [
        f"{name}: {told(found[name], possible[name](x, y), x, y)}"
        for name in found if not same(name, found[name], possible[name](x, y))
    ]
    assert not wrong, "; ".join(wrong)
    assert len(possible) - len(found) <= refused, sorted(set(possible) - set(found))


def shards(*quick: str) -> list[Any]:
    """All types; those that are not `quick` are slow."""
    return [kind if kind in quick else pytest.param(kind, marks=pytest.mark.slow) for kind in TYPES]


@pytest.mark.parametrize("kind", shards("uint8", "int64", "bfloat16", "float32"))
def test_operators_of_one_type(kind: str) -> None:
    x = edges(kind)
    check(operators(kind), x, x.roll(7), refused=3)


@pytest.mark.parametrize("kind", shards("uint8"))
def test_operators_of_two_types(kind: str) -> None:
    x = edges(kind)
    for other in TYPES:
        if other != kind:
            check(MIXED, x, edges(other).roll(7), refused=2)


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32", "bool"])
def test_sums_in_unsigned_integers(kind: str) -> None:
    x = torch.tensor([[100, 3, 200], [0, 255, 1], [7, 0, 90]]).to(getattr(torch, kind))
    module = Functions([
        lambda x: x.sum(1, dtype=torch.uint8), lambda x: x.cumsum(1, dtype=torch.uint8),
        lambda x: x.prod(1, dtype=torch.uint8), lambda x: x.sum(dtype=torch.uint8),
    ])
    found = motet.load(motet.compile(module, inputs=[x]))(x)
    for got, wanted in zip(found, module(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted.numpy())
