"""Loop nests by schedules: random legal ones against numpy in double precision; illegal ones have a reason."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, Executable, levels, native_target, object_code
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, layer_norm, op, softmax, stage, value
from tests.unit.compiler.codegen.cpu.nests import drawn_schedule

from motet.compiler.codegen.cpu.nest.shown import nest_of
from motet.compiler.codegen.cpu.select import check, generate
from motet.compiler.kernels.kernel import Kernel, Packing
from motet.compiler.kernels.schedule import (
    Nest,
    NestCopy,
    NestFusion,
    NestLoop,
    NestRegion,
    NestSchedule,
    StageNest,
    decode_schedule,
    encode_schedule,
)
from motet.compiler.targets.cpu import AARCH64, RISCV64, RISCV64_V, X86_64_V4, CpuTarget

SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 48, 49, 65)
TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, and its results in double precision."""

    kernel: Kernel
    arrays: list[np.ndarray]
    expected: list[np.ndarray]
    symbols: dict[str, int] = field(default_factory=dict[str, int])


def numbers(rng: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    generator = np.random.default_rng(rng.randrange(1 << 30))
    if dtype.startswith(("f", "bf")):
        return generator.standard_normal(shape).astype(DTYPES[dtype])
    return generator.integers(0 if dtype.startswith("u") else -9, 9, shape).astype(DTYPES[dtype])


def product_case(rng: random.Random) -> Case:
    """A product of two matrices, transposed or not, of known or dynamic extents."""
    dtype = rng.choice(("f32", "f32", "f64", "f16", "bf16", "i32", "i8"))
    out = {"i8": "i32"}.get(dtype, dtype)
    m, n, k = sizes = tuple(rng.choice((*SIZES, 0) if rng.random() < 0.2 else SIZES) for _ in range(3))
    symbols = {name: size for name, size in zip("mnk", sizes, strict=True) if rng.random() < 0.25}
    m_, n_, k_ = (name if name in symbols else size for name, size in zip("mnk", sizes, strict=True))
    orders = [rng.choice([(0, 1), (1, 0)]) for _ in range(3)]
    role = "constant" if not {"n", "k"} & symbols.keys() and rng.random() < 0.4 else "argument"
    floating = dtype[0] in "fb"
    casts = [op("extsi", 0, dtype=out), op("extsi", 1, dtype=out)] if out != dtype else []
    a, b = (3, 4) if casts else (0, 1)
    multiply, add = ("mulf", "addf") if floating else ("muli", "addi")
    body = [*casts, op(multiply, a, b, dtype=out), op(add, 2, 3 + len(casts), dtype=out)]
    found = kernel(
        [value((m_, k_), dtype, order=orders[0]), value((k_, n_), dtype, role, orders[1]),
         value((m_, n_), out, "result", order=orders[2])],
        stage((m_, n_, k_), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)], body,
              inits=[0.5 if floating else 3]), symbols=sorted(symbols),
    )
    x, y = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    wide = np.float64 if floating else np.int64
    return Case(found, [x, y], [x.astype(wide) @ y.astype(wide) + (0.5 if floating else 3)], symbols)


def window_case(rng: random.Random) -> Case:
    """A convolution of one axis with padding, a stride, and a dilation."""
    length, channels, filters, taps = (rng.choice((1, 3, 5, 8, 17)) for _ in range(4))
    step, spread, pad = rng.choice((1, 2)), rng.choice((1, 2)), rng.choice((0, 1, 3))
    rows = (length + 2 * pad - spread * (taps - 1) - 1) // step + 1
    if rows < 1:
        return window_case(rng)
    x, w = numbers(rng, (length, channels), "f32"), numbers(rng, (taps, channels, filters), "f32")
    found = kernel(
        [value((length, channels)), value((taps, channels, filters)), value((rows, filters), role="result")],
        stage(
            (rows, filters, taps, channels), "pprr",
            [at(0, 4, (-pad, {0: step, 2: spread}), 3, padding=0.0), at(1, 4, 2, 3, 1)], [at(2, 4, 0, 1)],
            [op("mulf", 0, 1), op("addf", 2, 3)], inits=[0.0],
        ),
    )
    padded = np.pad(x.astype(np.float64), ((pad, pad), (0, 0)))
    windows = [padded[i * step : i * step + spread * (taps - 1) + 1 : spread] for i in range(rows)]
    return Case(found, [x, w], [np.stack([np.einsum("tc,tcf->f", window, w) for window in windows])])


def elements_case(rng: random.Random) -> Case:
    """A stage of two results without reductions: broadcasts, a transposed and a strided input, an index."""
    n, m = rng.choice(SIZES), rng.choice(SIZES)
    dynamic = rng.random() < 0.3
    n_, m_ = ("n", "m") if dynamic else (n, m)
    step = 1 if dynamic else rng.choice((1, 2, 3))
    x, y, z = numbers(rng, (m, n), "f32"), numbers(rng, (n,), "f32"), numbers(rng, (n, m * step), "f32")
    found = kernel(
        [value((m_, n_)), value((n_,)), value((n_, m_ if dynamic else m * step)), value((n_, m_), role="result"),
         value((n_, m_), "i32", "result", (1, 0))],
        stage(
            (n_, m_), "pp", [at(0, 2, 1, 0), at(1, 2, 0), at(2, 2, 0, (0, {1: step}))],
            [at(3, 2, 0, 1), at(4, 2, 0, 1)],
            [op("mulf", 0, 1), op("addf", 5, 2), op("linalg.index", value=1, dtype="index"),
             op("index_cast", 7, dtype="i32")], yields=(6, 8), inits=[None, None],
        ), symbols=["m", "n"] if dynamic else [],
    )
    wide = x.T.astype(np.float64) * y[:, None] + z[:, ::step]
    index = np.broadcast_to(np.arange(m), (n, m))
    return Case(found, [x, y, z], [wide, index], {"n": n, "m": m} if dynamic else {})


REDUCERS: dict[str, tuple[str, float, Callable[..., Any]]] = {
    "addf": ("f32", 1.0, lambda x: x.sum((1, 2)) + 1), "maximumf": ("f32", float("-inf"), lambda x: x.max((1, 2))),
    "minnumf": ("f64", float("inf"), lambda x: x.min((1, 2))),
    "xori": ("i16", 5, lambda x: np.bitwise_xor.reduce(x, (1, 2)) ^ 5),
}


def reduction_case(rng: random.Random) -> Case:
    """A reduction of two dimensions of a tensor."""
    name = rng.choice(list(REDUCERS))
    dtype, init, reducer = REDUCERS[name]
    shape = (rng.choice(SIZES), rng.choice(SIZES), rng.choice(SIZES))
    x = numbers(rng, shape, dtype)
    found = kernel(
        [value(shape, dtype, order=rng.choice([(0, 1, 2), (1, 2, 0)])), value(shape[:1], dtype, "result")],
        stage(shape, "prr", [at(0, 3, 0, 1, 2)], [at(1, 3, 0)], [op(name, 0, 1, dtype=dtype)], inits=[init]),
    )
    return Case(found, [x], [reducer(x if name == "xori" else x.astype(np.float64))])


def ordered_case(rng: random.Random) -> Case:
    """A recurrence `r = r * 0.5 + x`, whose steps have an order."""
    n, k = rng.choice(SIZES), rng.choice(SIZES)
    x = numbers(rng, (n, k), "f32")
    found = kernel(
        [value((n, k)), value((n,), role="result")],
        stage((n, k), "pr", [at(0, 2, 0, 1)], [at(1, 2, 0)],
              [op("constant", value=0.5), op("mulf", 1, 2), op("addf", 3, 0)], inits=[2.0]),
    )
    total = np.full(n, 2.0)
    for column in x.T:
        total = total * 0.5 + column
    return Case(found, [x], [total])


def recurrence(n: int, k: int) -> Case:
    """A recurrence along `k`, without random extents."""
    x = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    found = kernel(
        [value((n, k)), value((n,), role="result")],
        stage((n, k), "pr", [at(0, 2, 0, 1)], [at(1, 2, 0)],
              [op("constant", value=0.5), op("mulf", 1, 2), op("addf", 3, 0)], inits=[2.0]),
    )
    return Case(found, [x], [1.0 + x[:, 0].astype(np.float64)])


def rows_case(rng: random.Random) -> Case:
    """Kernels of several stages."""
    n, m = rng.choice(SIZES), rng.choice(SIZES)
    x = numbers(rng, (n, m), "f32")
    wide = x.astype(np.float64)
    if rng.random() < 0.5:
        e = np.exp(wide - wide.max(1, keepdims=True))
        if rng.random() < 0.5:
            return Case(softmax("n", "m"), [x], [e / e.sum(1, keepdims=True)], {"n": n, "m": m})
        return Case(softmax(n, m), [x], [e / e.sum(1, keepdims=True)])
    w, b = numbers(rng, (m,), "f32"), numbers(rng, (m,), "f32")
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    return Case(layer_norm(n, m), [x, w, b], [normal * w + b])


def epilogue_case(rng: random.Random) -> Case:
    """A transposed product, then a bias and a clamp."""
    m, n, k = (rng.choice(SIZES) for _ in range(3))
    x, y, b = numbers(rng, (k, m), "f32"), numbers(rng, (k, n), "f32"), numbers(rng, (n,), "f32")
    found = kernel(
        [value((k, m)), value((k, n)), value((n,)), value((m, n), role=rng.choice(("result", "temporary"))),
         value((n, m), role="temporary"), value((n, m), role="result")],
        stage((m, n, k), "ppr", [at(0, 3, 2, 0), at(1, 3, 2, 1)], [at(3, 3, 0, 1)],
              [op("mulf", 0, 1), op("addf", 2, 3)], inits=[0.0]),
        stage((n, m), "pp", [at(3, 2, 1, 0), at(2, 2, 0)], [at(4, 2, 0, 1)], [op("addf", 0, 1)]),
        stage((n, m), "pp", [at(4, 2, 0, 1), at(3, 2, 1, 0)], [at(5, 2, 0, 1)],
              [op("constant", value=0.0), op("maximumf", 0, 3), op("subf", 4, 1)]),
    )
    product = x.T.astype(np.float64) @ y
    expected = np.maximum(product.T + b[:, None], 0) - product.T
    both = found.values[3].role == "result"
    return Case(found, [x, y, b], [product, expected] if both else [expected])


def diagonals_case(rng: random.Random) -> Case:
    """A scalar times a vector read along the diagonals of the result: copies without axes, or of one for two loops."""
    n, m = rng.choice(SIZES), rng.choice(SIZES)
    scale, x = numbers(rng, (), "f32"), numbers(rng, (n + m - 1,), "f32")
    found = kernel(
        [value(()), value((n + m - 1,)), value((n, m), role="result")],
        stage((n, m), "pp", [at(0, 2), at(1, 2, (0, {0: 1, 1: 1}))], [at(2, 2, 0, 1)], [op("mulf", 0, 1)],
              inits=[None]),
    )
    return Case(found, [scale, x], [float(scale) * x[np.add.outer(np.arange(n), np.arange(m))].astype(np.float64)])


CASES = (
    product_case, product_case, window_case, elements_case, reduction_case, ordered_case, rows_case, epilogue_case,
    epilogue_case, diagonals_case,
)


def verify(case: Case, schedule: NestSchedule, target: CpuTarget, split: int = 1) -> None:
    """Run `case` by `schedule`, which goes through JSON values, and compare."""
    code = generate(case.kernel, target, decode_schedule(encode_schedule(schedule)))
    assert code is not None and code.schedule == schedule
    results = Executable(case.kernel, code, target)(*case.arrays, symbols=case.symbols, split=split)
    for got, expected in zip(results, case.expected, strict=True):
        tolerance = TOLERANCE.get("bf16" if got.dtype == ml_dtypes.bfloat16 else f"f{8 * got.itemsize}", 0)
        if got.dtype.kind in "iu":
            tolerance = 0
        scale = max(1.0, np.abs(expected).max(initial=0))
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale)


def run_seed(seed: int) -> bool:
    """Verify one random kernel by a random schedule; False if none of several is legal."""
    rng = random.Random(seed)
    case = rng.choice(CASES)(rng)
    target = rng.choice(levels())
    for _ in range(10):
        schedule = drawn_schedule(rng, case.kernel)
        if not check(schedule, case.kernel, target):
            verify(case, schedule, target, rng.randint(1, 3))
            return True
    return False


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_legal_nests_compute_what_numpy_does(first: int) -> None:
    assert sum(run_seed(seed) for seed in range(first, first + 10)) >= 7


@pytest.mark.parametrize("operand", "AB")
@pytest.mark.parametrize(("text", "place"), [("i! j! i#4 j#4", "j"), ("j! i! i#4 j#4~", "i"), ("i! j i#4 j#4", "i")])
def test_tasks_keep_copies_of_equal_elements_alone(text: str, place: str, operand: str) -> None:
    for seed in range(6):
        case = diagonals_case(random.Random(seed))
        schedule = one(text, packs=[NestCopy(operand, place)])
        assert not check(schedule, case.kernel, X86_64_V4)
        verify(case, schedule, native_target())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_more_random_legal_nests(first: int) -> None:
    assert sum(run_seed(seed) for seed in range(first, first + 50)) >= 40


def loops(text: str) -> list[NestLoop]:
    """Loops as `i`, `i!` (parallel), `k+` (partial results), `i#8`, `i#8*` (all copies), `j#48~` (vectors)."""
    found: list[NestLoop] = []
    for word in text.split():
        dim, _, tile = word.rstrip("!*~+").partition("#")
        copies = 0 if "*" in word else None
        size = int(tile) if tile else None
        found.append(NestLoop(dim, size, "!" in word, "~" in word, copies, split_reduction="+" in word))
    return found


def product(m: int | str, n: int | str, k: int | str, dtype: str = "f32") -> Kernel:
    return kernel(
        [value((m, k), dtype), value((k, n), dtype), value((m, n), dtype, "result")],
        stage((m, n, k), "ppr", [at(0, 3, 0, 2), at(1, 3, 2, 1)], [at(2, 3, 0, 1)],
              [op("mulf", 0, 1, dtype=dtype), op("addf", 2, 3, dtype=dtype)], inits=[0.0]),
        symbols=[size for size in (m, n, k) if isinstance(size, str)],
    )


def one(text: str, **others: Any) -> NestSchedule:
    return NestSchedule([StageNest(0, Nest(loops(text), **others))])


ILLEGAL = {
    "i j k i#8* q#48~": "one of i, j, k",
    "i j": "a loop k over the whole dimension",
    "i j k i#8 i#16": "a size less than 8",
    "i#8 j k": "a loop i outside",
    "i j k!": "tasks would race",
    "i j k j#8~ i#4~": "j#8 is vectorised already",
    "i j k j#8~ j#4": "the innermost loop of j",
    "i i#4! j k": "i around it is not parallel",
    "i! k j!": "k around it is not parallel",
    "i k+ j": "i around it is not a task",
    "i+ j k": "it is no reduction; parallelize it; expected one of k",
    "k j i k#8+": "expected one loop over a whole reduction",
    "k+~ i j": "its iterations are tasks",
    "i j k i#100* j#48~": "at most 32 sums",
    "i j k k#600* j#48~": "at most 512 copies",
}


@pytest.mark.parametrize(("text", "expected"), ILLEGAL.items())
def test_illegal_nests_have_a_reason(text: str, expected: str) -> None:
    reasons = check(one(text), product(999, 999, 999), X86_64_V4)
    assert any(expected in str(reason) for reason in reasons), [str(reason) for reason in reasons]


@pytest.mark.parametrize(("found", "expected"), [
    (product(9, 9, "k"), "split_reduction of k: its extent is dynamic"),
    (product(9, 9, 9, "f16"), "split_reduction of k: partial results would be rounded to f16"),
    (product(9999, 9999, 9999), "expected a larger tile of k inside it"),
])
def test_partial_results_that_cannot_be_have_a_reason(found: Kernel, expected: str) -> None:
    assert expected in str(check(one("k+ i j"), found, X86_64_V4)[0])


def test_partial_results_of_a_chain_are_refused() -> None:
    (reason, *_) = check(one("j+ i"), recurrence(4, 9).kernel, X86_64_V4)
    assert str(reason).startswith("split_reduction of j: B[i] depends on its value in the iteration of j before")


@pytest.mark.parametrize("text", ["k+ i! j k#64 i#4* j#16~", "i! k+ j k#64 j#16~", "k+ i j", "k+ i j k#7 k#4~"])
@pytest.mark.parametrize("sizes", [(9, 33, 200), (7, 5, 64), (5, 17, 65), ("m", "n", 130), (1, 1, 3), (5, 7, 0)])
def test_partial_results_are_combined(text: str, sizes: tuple[int | str, int | str, int]) -> None:
    symbols = {name: size for name, size in (("m", 11), ("n", 23)) if name in sizes}
    m, n, k = (size if isinstance(size, int) else symbols[size] for size in sizes)
    rng = np.random.default_rng(m + n + k)
    x, y = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    found = product(*sizes)
    assert not check(one(text), found, native_target())
    case = Case(found, [x, y], [x.astype(np.float64) @ y], symbols)
    verify(case, one(text), native_target(), 2)
    code = generate(found, native_target(), one(text))
    assert code is not None and len(code.phases) == 2 and len(code.workspaces) == 1

def test_copies_and_fusions_that_cannot_be_have_a_reason() -> None:
    found = product("m", 9999, 9999)
    schedules = {
        "one of A, B": one("i j k", packs=[NestCopy("C", "j")]),
        "one of i, j, k": one("i j k", packs=[NestCopy("B", "q")]),
        "a loop inside which extents of A are known": one("j i k", packs=[NestCopy("A", "j")]),
        "a loop outside of j#48": one("i j k i#8* j#48~", packs=[NestCopy("B", "j#48")]),
        "a loop that is not copies": one("i j k i#8* j#48~", packs=[NestCopy("B", "i#8")]),
        "loops of a dimension inside its parts": one("i j k", regions=[NestRegion("k", 0, None, Nest([]))]),
        "at most 67108864 bytes": one("i k j", packs=[NestCopy("B", "i")]),
        "a nest or a fusion for every stage": NestSchedule([]),
        "one of stage0": NestSchedule([*one("i j k").nests, StageNest(1, Nest([]))]),
    }
    for expected, schedule in schedules.items():
        reasons = check(schedule, found, X86_64_V4)
        assert any(expected in str(reason) for reason in reasons), (expected, [str(reason) for reason in reasons])


@pytest.mark.parametrize("text", ["i j~", "i j j#8~", "i! j j#16~", "j i j#4 j#2~", "i j i#4* j#8~", "i j j#8~ i#4*"])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 17, 33])
def test_one_step_of_a_recurrence_is_no_vector(text: str, n: int) -> None:
    """Vectors along a dimension of one element are legal, whatever the order of terms; other lanes are not stored."""
    found = recurrence(n, 1)
    for target in levels():
        assert not check(one(text), found.kernel, target)
        verify(found, one(text), target)
    assert check(one(text), recurrence(n, 2).kernel, X86_64_V4)


def test_sums_of_short_floats_stay_in_registers() -> None:
    (reason,) = check(one("k i j"), product(9, 9, 9, "f16"), X86_64_V4)
    assert "loops of k inside all others" in str(reason)
    assert not check(one("i j k"), product(9, 9, 9, "f16"), X86_64_V4)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_buffer_keeps_sums_of_short_floats_wide(dtype: str) -> None:
    """Blocks of a long sum are added in f32: in the result's type, its terms would be lost after a few hundred."""
    found = product(5, 37, 3000, dtype)
    x, y = np.ones((5, 3000), DTYPES[dtype]), np.ones((3000, 37), DTYPES[dtype])
    blocked = "i! k j k#64 j#16~"
    assert check(one(blocked), found, X86_64_V4)
    verify(Case(found, [x, y], [np.full((5, 37), 3000.0)]), one(blocked, buffers=[NestCopy("C", "i")]), native_target())


def test_a_packed_constant_is_laid_out_when_compiling() -> None:
    found = product(64, 100, 33)
    found = replace(found, values=(found.values[0], replace(found.values[1], role="constant"), found.values[2]))
    code = generate(found, X86_64_V4, one("i! j k i#8* j#48~", packs=[NestCopy("B", "j")]))
    assert code is not None and code.scratch == 0
    assert code.packings == {1: Packing((0, 1), (1, 48), (2, 0, 3, 1))}


def test_an_epilogue_at_the_innermost_loop_needs_no_memory() -> None:
    case = epilogue_case(random.Random(3))
    fused = [NestFusion(1, "j"), NestFusion(2, "j")]
    schedule = NestSchedule([StageNest(0, Nest(loops("i! j k i#4* j#16~")))], fused)
    verify(case, schedule, native_target())
    code = generate(case.kernel, native_target(), schedule)
    assert code is not None and len(code.phases) == 1


@pytest.mark.parametrize("target", [AARCH64, RISCV64, RISCV64_V], ids=lambda target: target.name)
def test_other_processors_have_code(target: CpuTarget) -> None:
    """Random legal nests compile for targets that this machine cannot run."""
    compiled = 0
    for seed in range(12):
        rng = random.Random(seed)
        case = rng.choice(CASES)(rng)
        drawn = (drawn_schedule(rng, case.kernel) for _ in range(10))
        schedule = next((each for each in drawn if not check(each, case.kernel, target)), None)
        if schedule is not None:
            code = generate(case.kernel, target, schedule)
            assert code is not None and object_code(code.llvm, target)
            compiled += 1
    assert compiled >= 8


SHOWN = [
    product(512, 512, 512), product(33, 70, 5), product("m", 64, 100), product(1, 512, 512),
    product(64, 48, 31, "bf16"), softmax(64, 1000), softmax("n", "m"), layer_norm(51, 70), softmax(1, 1),
]


@pytest.mark.parametrize("found", SHOWN)
@pytest.mark.parametrize("target", [X86_64_V4, AARCH64], ids=lambda target: target.name)
def test_every_chosen_schedule_has_a_nest_near_it(found: Kernel, target: CpuTarget) -> None:
    chosen = generate(found, target)
    assert chosen is not None and chosen.schedule is not None
    shown = nest_of(found, chosen.schedule, target)
    assert shown is not None and not check(shown, found, target)
    assert nest_of(found, shown, target) is shown
