"""Modules of PyTorch with dynamic extents and guards, exported with random examples, against PyTorch itself.

Right is, for every call: the module's results, or a refusal; for the extents of the example: its results. Of extents
of 0 and 1 torch.export promises nothing, but lets them pass: anything but a crash is right.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tests.fuzz.trial import Outcome, Say

import motet
from motet.errors import MotetError

F = torch.nn.functional
Step = tuple[str, Callable[[Any], Any]]
_EXTENTS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)


def _steps(rng: random.Random) -> list[Step]:
    """Functions of a tensor of two axes, whose results have two axes as well."""
    k, m, axis = rng.randrange(1, 5), rng.randrange(2, 5), rng.randrange(2)
    return [
        (f"rows above {m + 1}", lambda x: x * 2 if x.shape[0] > m + 1 else x * 3),
        (f"multiples of {m}", lambda x: x + 1 if x.shape[axis] % m == 0 else x - 1),
        ("wide", lambda x: x.abs() if x.shape[0] < x.shape[1] else -x),
        (f"not {k} columns", lambda x: x * k if x.shape[1] != k else x),
        (f"product above {4 * m}", lambda x: x.sin() if x.shape[0] * x.shape[1] > 4 * m else x.cos()),
        (f"quotient {m}", lambda x: x[: max(x.shape[0] // m, 1)]),
        (f"round {m}", lambda x: x[: round(x.shape[0] / m) + 1]),
        (f"first {k}", lambda x: x[:, : torch.sym_min(x.shape[1], k)]),
        (f"last {k}", lambda x: x[-k:]),
        (f"every {m}th", lambda x: x[::m]),
        (f"from {k}", lambda x: x[k:] if x.shape[0] > k else x),
        ("turned", lambda x: x.t()),
        ("one row", lambda x: x.reshape(1, -1)),
        (f"{m} columns", lambda x: x.reshape(-1, m) if x.shape[0] * x.shape[1] % m == 0 else x),
        (f"padded by {k}", lambda x: F.pad(x, (k, 1))),
        (f"padded to multiples of {m}", lambda x: F.pad(x, (0, (m - x.shape[1] % m) % m))),
        ("with itself", lambda x: torch.cat([x, x * 0.5], axis)),
        ("sum", lambda x: x - x.sum(axis, keepdim=True) / x.shape[axis]),
        ("mean", lambda x: x - x.mean(axis, keepdim=True)),
        ("softmax", lambda x: x.softmax(axis)),
        ("running sums", lambda x: x.cumsum(axis)),
        ("sorted", lambda x: x.sort(axis)[0]),
        ("flipped", lambda x: x.flip(axis)),
        (f"rolled by {k}", lambda x: x.roll(k, axis)),
        ("gram", lambda x: x @ x.t() / x.shape[1]),
        ("numbered", lambda x: x + torch.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1)) * 0.1),
        ("scaled", lambda x: x / x.shape[0] ** 0.5),
        ("largest", lambda x: x - x.amax(axis, keepdim=True)),
        ("repeated", lambda x: x.repeat(1, m)),
        ("stretched", lambda x: x.repeat_interleave(m, axis)),
        ("windows", lambda x: x.unfold(0, 2, 1).sum(-1) if x.shape[0] > 1 else x),
        ("average pool", lambda x: F.avg_pool1d(x[None], 2, ceil_mode=True)[0]),
        (f"adaptive pool {m}", lambda x: F.adaptive_avg_pool1d(x[None], m)[0]),
        ("resized", lambda x: F.interpolate(x[None], scale_factor=2)[0]),
        ("triangle", lambda x: x.tril(k - 2)),
        ("halves", lambda x: x.chunk(2, 1)[0] * 2),
        (f"checked {m}", lambda x: _checked(x, m)),
    ]


def _checked(x: Any, least: int) -> Any:
    torch._check(x.shape[0] >= least)
    return x * 1.5


class Steps(torch.nn.Module):
    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Any) -> Any:
        for _, step in self.steps:
            x = step(x)
        return x


@dataclass(frozen=True)
class Exported:
    steps: list[Step]
    example: tuple[int, int]
    dynamic: dict[int, Any]


def draw(seed: int) -> Exported:
    rng = random.Random(f"exported {seed}")
    steps = [rng.choice(_steps(rng)) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
    example = rng.choice(_EXTENTS), rng.choice(_EXTENTS)
    axes = rng.choice(((0,), (1,), (0, 1), (0, 1)))
    dims: dict[int, Any] = {}
    for axis in axes:
        least, most = max(2, example[axis] - rng.randrange(1, 5)), example[axis] + rng.randrange(1, 30)
        limited = rng.random() < 0.3
        dims[axis] = torch.export.Dim(f"n{axis}", min=least, max=most) if limited else torch.export.Dim.AUTO
    return Exported(steps, example, dims)


def attempt(seed: int, say: Say) -> Outcome:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    drawn, outcome = draw(seed), Outcome(language="PyTorch")
    rng, module = random.Random(f"calls {seed}"), Steps(drawn.steps).eval()
    numbers = torch.Generator().manual_seed(seed)
    example = torch.randn(drawn.example, generator=numbers)
    try:
        module(example)
        torch.export.export(module, (example,), dynamic_shapes=(drawn.dynamic,))
    except Exception:  # not a program for PyTorch either
        return outcome
    say(f"compile [{seed}]")
    try:
        session = motet.load(motet.compile(module, inputs=[example], dynamic_shapes=(drawn.dynamic,), cache=False))
    except Exception as error:
        clean = isinstance(error, MotetError) and not isinstance(error, motet.WorkerCrash) and "\n" not in str(error)
        outcome.failed("refused" if clean else "error", f"{type(error).__name__}: {error}")
        return outcome
    with session:
        for number in range(8):
            shape = [n if number == 0 or axis not in drawn.dynamic else rng.choice((0, 1, *_EXTENTS, 40))
                     for axis, n in enumerate(drawn.example)]  # fmt: skip
            say(f"call {number} [{seed}]")
            _call(module, session, torch.randn(shape, generator=numbers), number == 0, outcome)
    return outcome


def _call(module: Any, session: Any, x: Any, is_example: bool, outcome: Outcome) -> None:
    outcome.calls += 1
    try:
        found = np.asarray(session(x))
    except MotetError as error:
        if is_example or "\n" in str(error):
            outcome.failed("wrong", f"{tuple(x.shape)} refused: {error}")
        return
    except Exception as error:
        outcome.failed("error", f"{type(error).__name__}: {error}")
        return
    if min(x.shape) < 2:
        return
    try:
        wanted = module(x.double()).numpy()
    except Exception as error:
        outcome.failed("wrong", f"{tuple(x.shape)} accepted; PyTorch: {error}")
        return
    if found.shape != wanted.shape:
        outcome.failed("wrong", f"{tuple(x.shape)}: a result of {found.shape}, expected {wanted.shape}")
        return
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
    if not np.allclose(found, wanted, rtol=1e-4, atol=1e-5 * size, equal_nan=True):
        outcome.failed("wrong", f"{tuple(x.shape)}: {found.reshape(-1)[:4]}, expected {wanted.reshape(-1)[:4]}")


def show(seed: int) -> str:
    drawn = draw(seed)
    return f"{' → '.join(name for name, _ in drawn.steps)}; example {drawn.example}, dynamic {drawn.dynamic}"
