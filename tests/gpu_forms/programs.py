"""Random programs: chains of element-wise work, reductions, movement, products, over odd shapes and all dtypes.

What they should give is what upstream's naive lowering gives, in the dtypes of the program and once more with all
floats widened to f64: how far these two are apart says how exact results can be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tests.gpu_forms.cases import Array, Case, Expected, exact_array, generated, largest, sample

import motet
from motet import builder as mb
from motet.artifact.reader import Artifact
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

# name: how many programs, the most elements of a tensor, dtypes, whether extents are dynamic
GROUPS: dict[str, tuple[int, int, tuple[str, ...], bool]] = {
    "floats": (120, 3000, ("f32", "f32", "f16", "bf16", "f64"), False),
    "integers": (60, 3000, ("i8", "i16", "i32", "i64", "i1"), False),
    "mixed": (60, 3000, ("f32", "f16", "bf16", "i32", "i8", "i64", "i1"), False),
    "small-floats": (20, 3000, ("f8E4M3FN", "f8E5M2", "f32"), False),
    "dynamic": (60, 3000, ("f32", "f16", "bf16", "f64", "i32", "i64"), True),
    "large": (60, 600_000, ("f32", "f16", "bf16", "f32", "i32", "i8", "f64"), False),
}
_EXTENTS = (1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 97, 129, 251)
_LARGE_EXTENTS = (1, 2, 3, 7, 16, 33, 64, 101, 128, 257, 512, 1000, 1031, 4097, 9001)
_UNIT = {"f16": 2.0**-9, "bf16": 2.0**-6, "f32": 4e-6, "f64": 1e-12, "f8E4M3FN": 2.0**-3, "f8E5M2": 2.0**-2}
_FLOATS = tuple(_UNIT)
_LOOSEST = 0.1  # relative; programs less well determined are left out
_WHOLE = 4096  # elements of a result that are all compared


def sources(group: str) -> Iterator[ProgramSource]:
    name = group.split("-", 1)[1]
    count, *_ = GROUPS[name]
    seed = found = 0
    while found < count:
        seed += 1
        source = ProgramSource(name, seed)
        if source.settle():
            found += 1
            yield source


@dataclass
class _Value:
    tensor: mb.Tensor
    shape: tuple[int, ...]
    dtype: str  # as in the program that is not widened
    exact: bool  # made without rounding
    special: bool  # may be NaN or infinite


class ProgramSource:
    """The program of a seed."""

    def __init__(self, group: str, seed: int) -> None:
        self.group, self.seed = group, seed
        self.name = self.key = f"{group} {seed}"
        self._expected: list[Expected] = []
        self._graph, self._inputs, _ = self._built(wide=False)

    def inputs(self) -> list[np.ndarray | Array]:
        return list(self._inputs)

    def compiled(self, others: Sequence[ProgramSource], target: str | None) -> Artifact:
        assert not others
        return motet.compile(self._graph, devices=target, cache=False)

    def case(self, group: str) -> Case:
        return Case(group, f"{self.name}: {self._steps}", self._expected)

    def settle(self) -> bool:
        """Whether the program is well determined; finds what it should give."""
        graph, inputs, values = self._built(wide=False)
        wide, _, _ = self._built(wide=True)
        arrays = [generated(i.dtype, i.shape, i.seed, i.special) for i in inputs]
        widened = [a.astype(np.float64) if i.dtype in _FLOATS else a for a, i in zip(arrays, inputs, strict=True)]
        try:
            with np.errstate(all="ignore"):
                plain = run_oracle(graph.program(), graph.name, arrays)
                exact = run_oracle(wide.program(), wide.name, widened)
        except (CompileError, RuntimeError):
            return False  # upstream cannot lower or load it
        for value, mine, best in zip(values, plain, exact, strict=True):
            expected = _expected(value, mine, best)
            if expected is None:
                return False
            self._expected.append(expected)
        return True

    def _built(self, wide: bool) -> tuple[mb.Graph, list[Array], list[_Value]]:
        making = _Making(self.group, self.seed, wide)
        with mb.Graph("main") as graph:
            results = making.fill(graph)
        self._steps = " ".join(making.steps)
        return graph, making.inputs, results


def _expected(value: _Value, plain: np.ndarray, exact: np.ndarray) -> Expected | None:
    """What a result should be; None where that depends on how it is calculated."""
    shape = None
    if plain.size > _WHOLE:
        shape = list(plain.shape)
        plain, exact = sample(plain), sample(exact)
    if value.dtype not in _FLOATS:
        if not np.array_equal(plain, exact):
            return None
        return Expected(value.dtype, exact_array(plain, value.dtype), shape=shape)
    if value.exact:
        return Expected(value.dtype, exact_array(plain.astype(np.float64), value.dtype), shape=shape)
    with np.errstate(all="ignore"):
        mine, best = plain.astype(np.float64), exact.astype(np.float64)
        safe = np.isfinite(mine) & np.isfinite(best) & (np.abs(best) < largest(value.dtype) / 2)
        alike = safe | (np.isnan(mine) & np.isnan(best)) | ((mine == best) & np.isinf(best))
        relative = _UNIT[value.dtype]
        tiny = relative * (float(np.median(np.abs(best[safe]))) + 0.25) + 1e-37 if safe.any() else 1e-37
        off = np.abs(mine - best)[safe] / (relative * np.abs(best)[safe] + tiny)
    scale = max(1.0, 4 * float(off.max(initial=0)))
    if relative * scale > _LOOSEST and value.dtype not in ("f8E4M3FN", "f8E5M2"):
        return None
    free = b"" if alike.all() else np.packbits(~alike).tobytes()
    return Expected(value.dtype, exact_array(best, value.dtype), relative * scale, tiny * scale, False, free, shape)


class _Making:
    def __init__(self, group: str, seed: int, wide: bool) -> None:
        _, self._most, self._dtypes, self._dynamic = GROUPS[group]
        self._random = random.Random(f"{group} {seed}")
        self._seed = seed
        self._wide = wide
        self._pool: list[_Value] = []
        self.inputs: list[Array] = []
        self.steps: list[str] = []

    def fill(self, graph: mb.Graph) -> list[_Value]:
        shape = self._shape()
        for number in range(self._random.randint(1, 3)):
            if number and self._random.random() < 0.5:  # one that broadcasts
                kept = [e if self._random.random() < 0.6 else 1 for e in shape]
                self._input(graph, tuple(kept[self._random.randint(0, len(kept) - 1):]))
            else:
                self._input(graph, shape)
        steps, tries = self._random.randint(2, 8), 0
        while steps and tries < 60:
            tries += 1
            choice = self._random.choice(_STEPS)
            before = self._random.getstate()
            try:
                made = choice(self)
            except CompileError:  # does not fit these operands
                self._random.setstate(before)
                self._random.random()
                continue
            if made is None or int(np.prod(made.shape)) > self._most or not all(made.shape):
                continue
            self.steps.append(f"{choice.__name__.strip('_')}:{made.dtype}{list(made.shape)}".replace(" ", ""))
            self._pool.append(made)
            steps -= 1
        results = [self._pool[-1], *self._random.sample(self._pool, self._random.randint(0, min(2, len(self._pool))))]
        for value in results:
            graph.result(value.tensor)
        return results

    def _shape(self) -> tuple[int, ...]:
        extents = _LARGE_EXTENTS if self._most > 10_000 else _EXTENTS
        while True:
            shape = tuple(self._random.choice(extents) for _ in range(self._random.randint(1, 4)))
            if self._most / 300 < int(np.prod(shape)) <= self._most:
                return shape

    def _input(self, graph: mb.Graph, shape: tuple[int, ...]) -> None:
        dtype, special = self._random.choice(self._dtypes), self._random.random() < 0.3
        number = len(self.inputs)
        dims: list[int | str] = list(shape)
        if self._dynamic and shape:
            axis = self._random.randrange(len(shape))
            dims[axis] = f"n{shape[axis]}"
        tensor = graph.input(f"x{number}", dims, self._actual(dtype))
        self.inputs.append(Array(dtype, list(shape), seed=self._seed * 8 + number + 1, special=special))
        self.steps.append(f"{dtype}{dims}{'!' if special else ''}".replace(" ", ""))
        self._pool.append(_Value(tensor, shape, dtype, True, special))

    def _actual(self, dtype: str) -> str:
        return "f64" if self._wide and dtype in _FLOATS else dtype

    def _any(self, *, floating: bool | None = None, rank: int = 0) -> _Value | None:
        fits = [v for v in self._pool if floating in (None, v.dtype in _FLOATS) and len(v.shape) >= rank]
        if not fits:
            return None
        return fits[-1] if self._random.random() < 0.6 else self._random.choice(fits)

    # -- steps: each a value, or None where nothing fits ---------------------------------------------------

    def _unary(self) -> _Value | None:
        x = self._any()
        if x is None or x.dtype in ("f8E4M3FN", "f8E5M2"):
            return None
        if x.dtype == "i1":
            return _Value(mb.logical_not(x.tensor), x.shape, "i1", True, False)
        if x.dtype not in _FLOATS:
            made = self._random.choice([mb.neg, mb.abs])(x.tensor)
            return _Value(made, x.shape, x.dtype, True, x.special)
        if x.exact and self._random.random() < 0.3:
            made = self._random.choice([mb.floor, mb.ceil, mb.round, mb.neg, mb.abs, mb.relu])(x.tensor)
            return _Value(made, x.shape, x.dtype, True, x.special)
        small = mb.clip(x.tensor, -6.0, 6.0)
        positive = mb.add(mb.abs(x.tensor), 0.5)
        made = self._random.choice([
            lambda: mb.exp(small), lambda: mb.log(positive), lambda: mb.sqrt(positive), lambda: mb.rsqrt(positive),
            lambda: mb.tanh(x.tensor), lambda: mb.erf(x.tensor), lambda: mb.sigmoid(x.tensor), lambda: mb.gelu(small),
            lambda: mb.gelu(small, "tanh"), lambda: mb.silu(small), lambda: mb.sin(small), lambda: mb.cos(small),
            lambda: mb.leaky_relu(x.tensor, 0.125),
        ])()
        return _Value(made, x.shape, x.dtype, False, x.special)

    def _binary(self) -> _Value | None:
        x = self._any()
        if x is None or x.dtype in ("f8E4M3FN", "f8E5M2"):
            return None
        alike = [v for v in self._pool if v.dtype == x.dtype and _broadcast(v.shape, x.shape) is not None]
        y = self._random.choice(alike)
        shape = _broadcast(x.shape, y.shape)
        assert shape is not None
        special = x.special or y.special
        if x.dtype == "i1":
            made = self._random.choice([mb.logical_and, mb.logical_or])(x.tensor, y.tensor)
            return _Value(made, shape, "i1", True, False)
        if x.dtype not in _FLOATS:
            made = self._random.choice([
                lambda: mb.add(x.tensor, y.tensor), lambda: mb.sub(x.tensor, y.tensor),
                lambda: mb.mul(x.tensor, y.tensor), lambda: mb.maximum(x.tensor, y.tensor),
                lambda: mb.minimum(x.tensor, y.tensor), lambda: mb.div(x.tensor, 7),
            ])()
            return _Value(made, shape, x.dtype, True, special)
        if self._random.random() < 0.3:
            made = self._random.choice([mb.maximum, mb.minimum])(x.tensor, y.tensor)
            return _Value(made, shape, x.dtype, x.exact and y.exact, special)
        made = self._random.choice([
            lambda: mb.add(x.tensor, y.tensor), lambda: mb.sub(x.tensor, y.tensor), lambda: mb.mul(x.tensor, y.tensor),
            lambda: mb.div(x.tensor, mb.add(mb.abs(y.tensor), 0.75)),
        ])()
        return _Value(made, shape, x.dtype, False, special)

    def _compare(self) -> _Value | None:
        x = self._any()
        if x is None or not x.exact or x.dtype in ("i1", "f8E4M3FN", "f8E5M2"):
            return None
        alike = [v for v in self._pool if v.dtype == x.dtype and v.exact and _broadcast(v.shape, x.shape) is not None]
        y = self._random.choice(alike)
        function = self._random.choice([mb.less, mb.less_equal, mb.greater, mb.greater_equal, mb.equal, mb.not_equal])
        shape = _broadcast(x.shape, y.shape)
        assert shape is not None
        return _Value(function(x.tensor, y.tensor), shape, "i1", True, False)

    def _where(self) -> _Value | None:
        tests = [v for v in self._pool if v.dtype == "i1"]
        x = self._any()
        if not tests or x is None:
            return None
        test = self._random.choice(tests)
        shape = _broadcast(test.shape, x.shape)
        if shape is None:
            return None
        alike = [v for v in self._pool if v.dtype == x.dtype and _broadcast(v.shape, shape) == shape]
        if not alike:
            return None
        y = self._random.choice(alike)
        made = mb.where(test.tensor, x.tensor, y.tensor)
        return _Value(made, shape, x.dtype, x.exact and y.exact, x.special or y.special)

    def _cast(self) -> _Value | None:
        x = self._any()
        target = self._random.choice(self._dtypes)
        if x is None or target == x.dtype:
            return None
        tensor = x.tensor
        if x.dtype in _FLOATS and target not in _FLOATS:
            if not x.exact or x.special:  # what does not fit is undefined
                return None
            if target != "i1":
                tensor = mb.clip(tensor, -100.0, 100.0) if "f8" not in x.dtype else tensor
        made = mb.cast(tensor, self._actual(target)) if tensor.dtype != self._actual(target) else tensor
        narrower = target in _FLOATS and not (x.dtype == "i1" or (x.dtype, target) in _WIDENING)
        return _Value(made, x.shape, target, x.exact and not narrower, x.special)

    def _reduce(self) -> _Value | None:
        x = self._any(rank=1)
        if x is None or x.dtype == "i1" or x.dtype in ("f8E4M3FN", "f8E5M2"):
            return None
        axes = sorted(self._random.sample(range(len(x.shape)), self._random.randint(1, len(x.shape))))
        kept = self._random.random() < 0.5
        shape = tuple(1 if i in axes else e for i, e in enumerate(x.shape) if kept or i not in axes)
        floating = x.dtype in _FLOATS
        choices = [mb.reduce_max, mb.reduce_min, mb.reduce_sum] + ([mb.reduce_mean] if floating else [mb.reduce_prod])
        function = self._random.choice(choices)
        rounds = floating and function in (mb.reduce_sum, mb.reduce_mean)
        return _Value(function(x.tensor, axes, kept), shape, x.dtype, x.exact and not rounds, x.special)

    def _normalise(self) -> _Value | None:
        x = self._any(floating=True, rank=1)
        if x is None or x.dtype in ("f8E4M3FN", "f8E5M2"):
            return None
        axis = self._random.randrange(len(x.shape))
        if self._random.random() < 0.5:
            return _Value(mb.softmax(x.tensor, axis), x.shape, x.dtype, False, x.special)
        return _Value(mb.layernorm(x.tensor, axes=axis), x.shape, x.dtype, False, x.special)

    def _transpose(self) -> _Value | None:
        x = self._any(rank=2)
        if x is None:
            return None
        order = self._random.sample(range(len(x.shape)), len(x.shape))
        return _Value(mb.transpose(x.tensor, order), tuple(x.shape[i] for i in order), x.dtype, x.exact, x.special)

    def _slice(self) -> _Value | None:
        x = self._any(rank=1)
        if x is None:
            return None
        starts, stops, steps, shape = [], [], [], []
        for extent in x.shape:
            start = self._random.randint(0, max(0, extent // 2 - 1))
            stop = self._random.randint(start + 1, extent)
            step = self._random.choice([1, 1, 1, 2, 3])
            starts.append(start)
            stops.append(stop)
            steps.append(step)
            shape.append(-(-(stop - start) // step))
        return _Value(mb.slice(x.tensor, starts, stops, steps), tuple(shape), x.dtype, x.exact, x.special)

    def _pad(self) -> _Value | None:
        x = self._any(rank=1)
        if x is None or x.dtype in ("i1", "f8E4M3FN", "f8E5M2"):
            return None
        low = [self._random.choice([0, 0, 1, 3]) for _ in x.shape]
        high = [self._random.choice([0, 0, 1, 2]) for _ in x.shape]
        shape = tuple(a + b + e for a, b, e in zip(low, high, x.shape, strict=True))
        value = self._random.choice([0, 3] if x.dtype not in _FLOATS else [0.0, -1.5, float("-inf")])
        return _Value(mb.pad(x.tensor, low, high, value), shape, x.dtype, x.exact, x.special or value == float("-inf"))

    def _concat(self) -> _Value | None:
        x = self._any(rank=1)
        if x is None:
            return None
        axis = self._random.randrange(len(x.shape))
        rest = (*x.shape[:axis], *x.shape[axis + 1 :])
        fits = [v for v in self._pool if v.dtype == x.dtype and len(v.shape) == len(x.shape)
                and (*v.shape[:axis], *v.shape[axis + 1 :]) == rest]
        parts = [x, *(self._random.choice(fits) for _ in range(self._random.randint(1, 3)))]
        self._random.shuffle(parts)
        shape = (*x.shape[:axis], sum(v.shape[axis] for v in parts), *x.shape[axis + 1 :])
        made = mb.concat([v.tensor for v in parts], axis)
        return _Value(made, shape, x.dtype, all(v.exact for v in parts), any(v.special for v in parts))

    def _reshape(self) -> _Value | None:
        x = self._any(rank=1)
        if x is None:
            return None
        if len(x.shape) > 1 and self._random.random() < 0.7:
            at = self._random.randrange(len(x.shape) - 1)
            shape = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
        else:
            at = self._random.randrange(len(x.shape))
            factors = [f for f in (2, 3, 4, 8, 16) if x.shape[at] % f == 0]
            if not factors:
                return None
            f = self._random.choice(factors)
            shape = (*x.shape[:at], f, x.shape[at] // f, *x.shape[at + 1 :])
        if len(shape) > 5:
            return None
        return _Value(mb.reshape(x.tensor, shape), shape, x.dtype, x.exact, x.special)

    def _broadcast_to(self) -> _Value | None:
        x = self._any()
        if x is None or len(x.shape) > 3:
            return None
        extra = self._random.choice([2, 3, 17])
        shape = (extra, *(extra if e == 1 and self._random.random() < 0.5 else e for e in x.shape))
        return _Value(mb.broadcast_to(x.tensor, shape), shape, x.dtype, x.exact, x.special)

    def _matmul(self) -> _Value | None:
        x = self._any(floating=True, rank=2)
        if x is None or x.dtype in ("f8E4M3FN", "f8E5M2"):
            return None
        order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        fits = [v for v in self._pool if v.dtype == x.dtype and len(v.shape) == 2 and v.shape[0] == x.shape[-1]]
        if fits and self._random.random() < 0.5:
            y = self._random.choice(fits)
            made = mb.matmul(x.tensor, y.tensor)
            return _Value(made, (*x.shape[:-1], y.shape[1]), x.dtype, False, x.special or y.special)
        made = mb.matmul(x.tensor, mb.transpose(x.tensor, order))
        return _Value(made, (*x.shape[:-1], x.shape[-2]), x.dtype, False, x.special)


_STEPS = [
    _Making._unary, _Making._unary, _Making._binary, _Making._binary, _Making._compare, _Making._where, _Making._cast,
    _Making._cast, _Making._reduce, _Making._reduce, _Making._normalise, _Making._transpose, _Making._slice,
    _Making._pad, _Making._concat, _Making._reshape, _Making._broadcast_to, _Making._matmul,
]
_WIDENING = {
    ("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64"), ("f8E4M3FN", "f32"),
    ("f8E5M2", "f32"),
    ("i8", "f32"), ("i16", "f32"), ("i8", "f64"), ("i16", "f64"), ("i32", "f64"), ("i8", "f16"), ("i8", "bf16"),
}


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


