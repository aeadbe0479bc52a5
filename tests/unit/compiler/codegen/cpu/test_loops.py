"""Loop kernels against numpy: broadcasts, orders, windows, padding, slices, several stages, dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seeds import seeds
from tests.unit.compiler.codegen.cpu.harness import DTYPES, build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, softmax, stage, value

from motet.compiler.codegen.cpu.rows import loops, plan
from motet.compiler.codegen.cpu.rows.plan import loop_of
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import X86_64_V3

RNG = np.random.default_rng(9)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 4))
def test_broadcasts_of_any_size(count, columns, split):
    shape = (count, columns)
    found = kernel(
        [value(shape), value((columns,)), value((count, 1)), value(shape, role="result")],
        stage(
            shape,
            "pp",
            [at(0, 2, 0, 1), at(1, 2, 1), at(2, 2, 0, (0, {}))],
            [at(3, 2, 0, 1)],
            [op("addf", 0, 1), op("mulf", 4, 2)],
        ),
    )
    x, b, s = random(*shape), random(columns), random(count, 1)
    (got,) = build(loops.CLASS.generate, found)(x, b, s, split=split)
    np.testing.assert_allclose(got, (x + b) * s, rtol=1e-6)


def test_unknown_sizes_in_every_partition():
    found = kernel(
        [value(("a", "b", "c")), value(("c",)), value(("a", "b", "c"), role="result")],
        stage(
            ("a", "b", "c"), "ppp", [at(0, 3, 0, 1, 2), at(1, 3, 2)], [at(2, 3, 0, 1, 2)], [op("subf", 0, 1)]
        ),
        symbols=("a", "b", "c"),
    )
    executable = build(loops.CLASS.generate, found)
    for a, b, c in [(1, 1, 1), (2, 3, 5), (7, 1, 130), (3, 40, 64), (1, 2, 9001), (400, 5, 17), (0, 3, 4)]:
        x, y = random(a, b, c), random(c)
        for split in (1, 3):
            (got,) = executable(x, y, symbols={"a": a, "b": b, "c": c}, split=split)
            np.testing.assert_array_equal(got, x - y)


def test_stages_that_write_one_value_are_tried_as_a_group_once_each(monkeypatch):
    tried = []

    def counted(found, stages, *more):
        tried.append(stages)
        return group(found, stages, *more)

    group = plan.group
    monkeypatch.setattr(plan, "group", counted)
    copies = [stage((3,), "p", [at(0, 1, 0)], [at(1, 1, (3 * n, {0: 1}))], [], yields=(0,)) for n in range(200)]
    found = kernel([value((3,)), value((600,), role="result")], *copies)
    schedule = plan.choose(found, X86_64_V3)
    assert schedule is not None and len(schedule.phases) == 200
    assert len(tried) == 200


def test_phases_take_the_buffers_that_they_access():
    parts = [stage((3,), "p", [at(n, 1, 0)], [at(9, 1, (3 * n, {0: 1}))], [op("negf", 0)]) for n in range(9)]
    found = kernel([*(value((3,)) for _ in range(9)), value((27,), role="result")], *parts)
    code = loops.CLASS.generate(found, X86_64_V3)
    assert code is not None
    assert [phase.buffers for phase in code.phases] == [(n, 9) for n in range(9)]
    given = [random(3) for _ in range(9)]
    (got,) = build(loops.CLASS.generate, found)(*given)
    np.testing.assert_array_equal(got, -np.concatenate(given))


def test_a_long_dimension_is_cut_into_tasks():
    found = kernel(
        [value(("n",)), value(("n",), role="result")],
        stage(("n",), "p", [at(0, 1, 0)], [at(1, 1, 0)], [op("negf", 0)]),
        symbols=("n",),
    )
    executable = build(loops.CLASS.generate, found)
    for n in (1, 4095, 4097, 1_000_003):
        x = random(n)
        invocation = executable.prepare([x], {"n": n})
        invocation.run(split=3)
        np.testing.assert_array_equal(invocation.results()[0], -x)
    assert invocation.tasks[0] > 4


@pytest.mark.parametrize("dtype", ["i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("shape", [(40, 33), (100, 7), (64, 64), (1, 5)])
@pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)
def test_transpose(dtype, shape, target):
    found = kernel(
        [value(shape, dtype), value(shape[::-1], dtype, "result")],
        stage(shape[::-1], "pp", [at(0, 2, 1, 0)], [at(1, 2, 0, 1)], [], yields=(0,)),
    )
    x = RNG.integers(0, 2, shape).astype(DTYPES[dtype])
    (got,) = build(loops.CLASS.generate, found, target)(x, split=2)
    np.testing.assert_array_equal(got.astype(float), x.T.astype(float))


@pytest.mark.parametrize(
    "source, target",
    [((0, 1, 2, 3), (0, 2, 3, 1)), ((0, 2, 3, 1), (0, 1, 2, 3)), ((3, 1, 0, 2), (1, 0, 2, 3))],
)
@pytest.mark.parametrize("shape", [(2, 19, 7, 9), (1, 64, 14, 14), (3, 3, 3, 3)])
def test_changes_of_physical_order(source, target, shape):
    found = kernel(
        [value(shape, order=source), value(shape, role="result", order=target)],
        stage(shape, "pppp", [at(0, 4, 0, 1, 2, 3)], [at(1, 4, 0, 1, 2, 3)], [op("negf", 0)]),
    )
    x = random(*shape)
    np.testing.assert_array_equal(build(loops.CLASS.generate, found)(x, split=3)[0], -x)


@pytest.mark.parametrize("seed", seeds(12))
def test_permutations_of_odd_extents(seed):
    """Tiles of 4 to 16 lanes; the last ones of a dimension overlap, or its points are written one by one."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 6))
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 34], rank))
    order = tuple(int(n) for n in rng.permutation(rank))
    dtype = str(rng.choice(["i8", "f16", "f32", "f64"]))
    found = kernel(
        [value(shape, dtype), value(tuple(shape[d] for d in order), dtype, "result")],
        stage(
            tuple(shape[d] for d in order), "p" * rank, [at(0, rank, *(order.index(d) for d in range(rank)))],
            [at(1, rank, *range(rank))], [], yields=(0,),
        ),
    )  # fmt: skip
    x = rng.integers(-9, 9, shape).astype(DTYPES[dtype])
    for split in (1, 3):
        (got,) = build(loops.CLASS.generate, found)(x, split=split)
        np.testing.assert_array_equal(got, x.transpose(order))


@pytest.mark.parametrize("channels", [2, 3, 5, 7, 8])
@pytest.mark.parametrize("dtype", ["i1", "i8", "f16", "bf16", "f32", "f64"])
def test_few_channels_become_innermost_at_unknown_widths(channels, dtype):
    found = kernel(
        [value((channels, "w"), dtype), value(("w", channels), dtype, "result")],
        stage(("w", channels), "pp", [at(0, 2, 1, 0)], [at(1, 2, 0, 1)], [], yields=(0,)), symbols=("w",),
    )  # fmt: skip
    for target in (native_target(), X86_64_V3):
        executable = build(loops.CLASS.generate, found, target)
        for width in (0, 1, 3, 16, 31, 64, 65, 300):
            x = np.random.default_rng(width).integers(0, 2, (channels, width)).astype(DTYPES[dtype])
            (got,) = executable(x, symbols={"w": width}, split=2)
            np.testing.assert_array_equal(got.astype(float), x.T.astype(float))


def test_transposed_and_uniform_inputs_of_unknown_sizes():
    found = kernel(
        [value(("m", "n")), value(("n",)), value(("n", "m"), role="result")],
        stage(("n", "m"), "pp", [at(0, 2, 1, 0), at(1, 2, 0)], [at(2, 2, 0, 1)], [op("mulf", 0, 1)]),
        symbols=("m", "n"),
    )
    executable = build(loops.CLASS.generate, found)
    for m, n in [(1, 1), (16, 16), (17, 18), (15, 40), (40, 15), (19, 35), (3, 200), (0, 5)]:
        x, y = random(m, n), random(n)
        np.testing.assert_array_equal(executable(x, y, symbols={"m": m, "n": n}, split=2)[0], x.T * y[:, None])


def test_transposed_and_straight_inputs_together_in_unknown_sizes():
    found = kernel(
        [value(("m", "n")), value(("n", "m")), value(("n", "m"), role="result")],
        stage(("n", "m"), "pp", [at(0, 2, 1, 0), at(1, 2, 0, 1)], [at(2, 2, 0, 1)], [op("addf", 0, 1)]),
        symbols=("m", "n"),
    )
    executable = build(loops.CLASS.generate, found)
    for m, n in [(1, 1), (16, 16), (35, 70), (3, 200)]:
        x, y = random(m, n), random(n, m)
        np.testing.assert_array_equal(executable(x, y, symbols={"m": m, "n": n}, split=2)[0], x.T + y)


def pool(shape, window: int, stride: int, pad: int, name: str, start: float, order):
    n, c, h, w = shape
    out = tuple((size + 2 * pad - window) // stride + 1 for size in (h, w))
    return kernel(
        [value(shape, order=order), value((n, c, *out), role="result", order=order)],
        stage(
            (n, c, *out, window, window),
            "pppprr",
            [
                at(
                    0,
                    6,
                    0,
                    1,
                    (-pad, {2: stride, 4: 1}),
                    (-pad, {3: stride, 5: 1}),
                    padding=start if pad else None,
                )
            ],
            [at(1, 6, 0, 1, 2, 3)],
            [op(name, 0, 1)],
            inits=[start],
        ),
    )


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)])
@pytest.mark.parametrize("window, stride, pad", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2), (3, 4, 0)])
@pytest.mark.parametrize("name", ["maximumf", "addf"])
def test_pooling(order, window, stride, pad, name):
    shape = (2, 5, 13, 41)
    start = -np.inf if name == "maximumf" else 0.0
    x = random(*shape)
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=start)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3))[
        :, :, ::stride, ::stride
    ]
    expected = windows.max((-1, -2)) if name == "maximumf" else windows.astype(np.float64).sum((-1, -2))
    (got,) = build(loops.CLASS.generate, pool(shape, window, stride, pad, name, start, order))(x, split=3)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_padding_alone():
    found = kernel(
        [value((5, 19)), value((9, 30), role="result")],
        stage(
            (9, 30),
            "pp",
            [at(0, 2, (-3, {0: 1}), (-4, {1: 1}), padding=-1.5)],
            [at(1, 2, 0, 1)],
            [],
            yields=(0,),
        ),
    )
    x = random(5, 19)
    expected = np.pad(x, ((3, 1), (4, 7)), constant_values=-1.5)
    np.testing.assert_array_equal(build(loops.CLASS.generate, found)(x)[0], expected)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, -1])
def test_slices_read_and_written(step):
    start = 99 if step < 0 else 1
    found = kernel(
        [value((4, 100)), value((4, 60), role="result")],
        stage((4, 19), "pp", [at(0, 2, 0, (start, {1: step}))], [at(1, 2, 0, (40, {1: 1}))], [], yields=(0,)),
        stage((4, 40), "pp", [at(0, 2, 0, 1)], [at(1, 2, 0, 1)], [op("negf", 0)]),
    )
    x = random(4, 100)
    (got,) = build(loops.CLASS.generate, found)(x)
    np.testing.assert_array_equal(got[:, 40:59], x[:, start::step][:, :19])
    np.testing.assert_array_equal(got[:, :40], -x[:, :40])


def test_diagonal_and_indices():
    found = kernel(
        [value((21, 21)), value((21,), role="result"), value((21,), "i64", "result")],
        stage(
            (21,),
            "p",
            [at(0, 1, 0, 0)],
            [at(1, 1, 0), at(2, 1, 0)],
            [
                op("linalg.index", dtype="index", value=0),
                op("index_cast", 3, dtype="i64"),
                op("addi", 4, 4, dtype="i64"),
            ],
            yields=(0, 5),
        ),
    )
    x = random(21, 21)
    diagonal, doubled = build(loops.CLASS.generate, found)(x)
    np.testing.assert_array_equal(diagonal, np.diag(x))
    np.testing.assert_array_equal(doubled, 2 * np.arange(21))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 5, 37), (17, 1, 16)])
def test_sums_over_any_axes(axes, shape):
    kept = [d for d in range(3) if d not in axes]
    found = kernel(
        [value(shape), value([shape[d] for d in kept], role="result")],
        stage(
            shape,
            "".join("r" if d in axes else "p" for d in range(3)),
            [at(0, 3, 0, 1, 2)],
            [at(1, 3, *kept)],
            [op("addf", 0, 1)],
            inits=[0.0],
        ),
    )
    x = random(*shape)
    (got,) = build(loops.CLASS.generate, found)(x, split=2)
    np.testing.assert_allclose(got, x.astype(np.float64).sum(axes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", seeds(16))
def test_sums_whose_results_have_another_order_than_the_input(seed):
    """Vectors run along the input's contiguous dimension if it is parallel; results are stored one by one."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(3, 6))
    shape = [int(n) for n in rng.choice([1, 2, 3, 5, 6, 9, 16, 17, 31], rank)]
    shape[-1] = int(rng.choice([15, 16, 17, 33, 70]))
    axes = {int(d) for d in rng.choice(rank - 1, int(rng.integers(1, rank - 1)), replace=False)}
    kept = [int(d) for d in rng.permutation([d for d in range(rank) if d not in axes])]
    dtype = str(rng.choice(["f16", "bf16", "f32", "f64", "i32"]))
    names: list[int | str] = [f"n{d}" if rng.random() < 0.3 else size for d, size in enumerate(shape)]
    symbols = {f"n{d}": size for d, size in enumerate(shape) if names[d] == f"n{d}"}
    add = op("addi" if dtype == "i32" else "addf", 0, 1, dtype=dtype)
    found = kernel(
        [value(names, dtype), value([names[d] for d in kept], dtype, "result")],
        stage(names, "".join("r" if d in axes else "p" for d in range(rank)), [at(0, rank, *range(rank))],
              [at(1, rank, *kept)], [add], inits=[0]),
        symbols=tuple(symbols),
    )  # fmt: skip
    x = rng.integers(-2, 3, shape).astype(DTYPES[dtype])
    expected = np.einsum(x.astype(np.float64), list(range(rank)), kept)
    for target in (native_target(), X86_64_V3):
        (got,) = build(loops.CLASS.generate, found, target)(x, symbols=symbols, split=2)
        rounding = 2.0**-8 if dtype == "bf16" else 0  # sums of small integers are exact in the other types
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=rounding, atol=0)


def test_vectors_run_along_what_a_long_reduction_reads_contiguously():
    found = kernel(
        [value((6, 7, 40)), value((40, 7), role="result")],
        stage((6, 7, 40), "rpp", [at(0, 3, 0, 1, 2)], [at(1, 3, 2, 1)], [op("addf", 0, 1)], inits=[0.0]),
    )
    loop = loop_of(found, found.stages[0], native_target())
    assert loop.along is not None and loop.nest.inputs[0].strides[loop.along] == ONE


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i32"])
def test_long_reductions_are_divided(dtype):
    shape = (640, 500)
    add = "addi" if dtype == "i32" else "addf"
    found = kernel(
        [value(shape, dtype), value((), dtype, "result")],
        stage(shape, "rr", [at(0, 2, 0, 1)], [at(1, 2)], [op(add, 0, 1, dtype=dtype)], inits=[3]),
    )
    x = RNG.integers(0, 2, shape).astype(DTYPES[dtype])
    executable = build(loops.CLASS.generate, found)
    assert len(executable.code.phases) == 2
    expected = np.float64(x.astype(np.float64).sum() + 3)
    got = float(executable(x, split=5)[0])
    rounding = {"f32": 0, "i32": 0, "bf16": 2.0**-8, "f16": 2.0**-10}[dtype]
    assert (np.isinf(got) and expected > 65504) or abs(got - expected) <= rounding * expected


def test_stages_that_do_not_share_rows_run_one_after_the_other():
    """A softmax over columns of a tensor whose rows lie side by side: the reductions are not contiguous."""
    rows, columns = 23, 40
    found = softmax(rows, columns)
    values = tuple(value(v.shape, v.dtype, v.role, (1, 0) if v.rank == 2 else (0,)) for v in found.values)
    x = random(rows, columns)
    executable = build(loops.CLASS.generate, kernel(values, *found.stages))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(executable(x, split=2)[0], e / e.sum(1, keepdims=True), rtol=2e-6)


def test_reduction_starts_from_another_tensor():
    found = kernel(
        [value((30, 50)), value((50,)), value((50,), role="result")],
        stage((30, 50), "rp", [at(0, 2, 0, 1)], [at(2, 2, 1)], [op("addf", 0, 1)], inits=[at(1, 2, 1)]),
    )
    x, b = random(30, 50), random(50)
    np.testing.assert_allclose(
        build(loops.CLASS.generate, found)(x, b)[0], x.sum(0, dtype=float) + b, rtol=1e-4, atol=1e-5
    )


def test_depthwise_window():
    n, h, w, c = 1, 9, 11, 35
    found = kernel(
        [value((n, h, w, c)), value((3, 3, c)), value((n, 7, 9, c), role="result")],
        stage(
            (n, 7, 9, c, 3, 3),
            "pppprr",
            [at(0, 6, 0, (0, {1: 1, 4: 1}), (0, {2: 1, 5: 1}), 3), at(1, 6, 4, 5, 3)],
            [at(2, 6, 0, 1, 2, 3)],
            [op("mulf", 0, 1), op("addf", 2, 3)],
            inits=[0.0],
        ),
    )
    x, k = random(n, h, w, c), random(3, 3, c)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(float), (3, 3), (1, 2))
    expected = np.einsum("nhwcij,ijc->nhwc", windows, k)
    np.testing.assert_allclose(build(loops.CLASS.generate, found)(x, k)[0], expected, rtol=1e-4, atol=1e-5)


def test_lanes_that_do_not_exist_do_not_divide_by_zero():
    found = kernel(
        [value((19,), "i32"), value((19,), "i32"), value((19,), "i32", "result")],
        stage((19,), "p", [at(0, 1, 0), at(1, 1, 0)], [at(2, 1, 0)], [op("divsi", 0, 1, dtype="i32")]),
    )
    x, y = np.arange(19, dtype=np.int32) * 7, np.full(19, 3, np.int32)
    np.testing.assert_array_equal(build(loops.CLASS.generate, found)(x, y)[0], x // 3)


def test_large_results_are_written_whole_whether_aligned_or_not():
    """Results of 32 MiB and more go past the caches, if they begin at a multiple of 64 bytes."""
    rows, columns = 4099, 2064
    shape = (rows, columns)
    found = kernel(
        [value(shape), value(shape, role="result")],
        stage(shape, "pp", [at(0, 2, 0, 1)], [at(1, 2, 0, 1)], [op("negf", 0)]),
    )
    turned = kernel(
        [value(shape[::-1]), value(shape, role="result")],
        stage(shape, "pp", [at(0, 2, 1, 0)], [at(1, 2, 0, 1)], [op("negf", 0)]),
    )
    x = random(*shape)
    assert "nontemporal" in build(loops.CLASS.generate, found).code.llvm
    np.testing.assert_array_equal(build(loops.CLASS.generate, found)(x, split=3)[0], -x)
    np.testing.assert_array_equal(build(loops.CLASS.generate, turned)(x.T.copy(), split=3)[0], -x)
    unaligned = build(loops.CLASS.generate, found).prepare([x])
    unaligned.move_results(4)
    unaligned.run()
    np.testing.assert_array_equal(unaligned.results()[0], -x)


@pytest.mark.parametrize("columns", [2064, 2063])
@pytest.mark.parametrize("rows", [4099, 3, 1])
def test_results_of_unknown_size_are_written_whole_whether_large_or_not(rows, columns):
    shape = ("n", columns)
    found = kernel(
        [value(shape), value((columns,)), value(shape, role="result")],
        stage(shape, "pp", [at(0, 2, 0, 1), at(1, 2, 1)], [at(2, 2, 0, 1)], [op("addf", 0, 1)]),
        symbols=["n"],
    )
    x, bias = random(rows, columns), random(columns)
    executable = build(loops.CLASS.generate, found)
    assert ("nontemporal" in executable.code.llvm) == (columns % 16 == 0)
    for offset in (0, 4):
        invocation = executable.prepare([x, bias], {"n": rows})
        invocation.move_results(offset)
        invocation.run(2)
        np.testing.assert_array_equal(invocation.results()[0], x + bias)
