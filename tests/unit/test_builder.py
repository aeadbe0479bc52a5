"""The Python builder against numpy, run by upstream's naive lowering."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_source
from tests.seeds import examples

from motet import builder as mb
from motet.builder import movement
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

RNG = np.random.default_rng(20261121)
SOURCE = Path(mb.__file__).parents[2]


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def run(graph: mb.Graph, *inputs: np.ndarray) -> list[np.ndarray]:
    return run_oracle(graph.program(), graph.name, inputs)


def evaluate(
    build: Callable[..., mb.Tensor | list[mb.Tensor]], *arrays: np.ndarray, dynamic: bool = False
) -> list[np.ndarray]:
    """The results of `build` applied to graph inputs with the arrays' shapes (dynamic ones, if asked)."""
    names = {np.dtype(ml_dtypes.bfloat16): "bf16"}
    with mb.Graph("test") as graph:
        inputs = []
        for i, array in enumerate(arrays):
            shape = [f"s{e}" if dynamic else e for e in array.shape]
            inputs.append(graph.input(f"x{i}", shape, names.get(array.dtype, array.dtype)))
        built = build(*inputs)
        for tensor in built if isinstance(built, list) else [built]:
            graph.result(tensor)
    return run(graph, *arrays)


def check(
    build: Callable[..., mb.Tensor | list[mb.Tensor]],
    expected: np.ndarray | list[np.ndarray],
    *arrays: np.ndarray,
    dynamic: bool = False,
    tolerance: float = 1e-5,
) -> None:
    wanted = expected if isinstance(expected, list) else [expected]
    for found, want in zip(evaluate(build, *arrays, dynamic=dynamic), wanted, strict=True):
        assert found.shape == want.shape
        np.testing.assert_allclose(
            found.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def test_importing_the_builder_loads_no_mlir():
    code = (
        "import sys; import motet.builder; "
        "print([m for m in sys.modules if m.startswith(('torch_mlir', 'llvmlite'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("dynamic", [False, True])
def test_arithmetic_follows_numpy(dynamic: bool):
    a, b = normal(3, 7), np.abs(normal(3, 7)) + 0.5
    erf = np.vectorize(math.erf)
    check(
        lambda x, y: [
            x + y, x - y, 2.0 * x, x / y, 1 - x, 3 / y, -x, abs(x), y ** 2, y ** 1.5, 2.0 ** x,
            mb.maximum(x, 0.25), mb.minimum(x, y), mb.clip(x, -0.5, 0.5), mb.exp(x), mb.log(y), mb.sqrt(y),
            mb.rsqrt(y), mb.sin(x), mb.cos(x), mb.tanh(x), mb.erf(x), mb.floor(x), mb.ceil(x), mb.round(x),
        ],
        [
            a + b, a - b, 2 * a, a / b, 1 - a, 3 / b, -a, np.abs(a), b ** 2, b ** 1.5, 2.0 ** a,
            np.maximum(a, 0.25), np.minimum(a, b), np.clip(a, -0.5, 0.5), np.exp(a), np.log(b), np.sqrt(b),
            1 / np.sqrt(b), np.sin(a), np.cos(a), np.tanh(a), erf(a), np.floor(a), np.ceil(a), np.round(a),
        ],
        a, b, dynamic=dynamic,
    )  # fmt: skip


def test_activations_follow_their_definitions():
    a = normal(5, 11) * 3
    sigmoid = 1 / (1 + np.exp(-a))
    gelu = 0.5 * a * (1 + np.vectorize(math.erf)(a / math.sqrt(2)))
    gelu_tanh = 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
    check(
        lambda x: [
            mb.relu(x),
            mb.leaky_relu(x, 0.1),
            mb.sigmoid(x),
            mb.silu(x),
            mb.gelu(x),
            mb.gelu(x, "tanh"),
        ],
        [np.maximum(a, 0), np.where(a > 0, a, 0.1 * a), sigmoid, a * sigmoid, gelu, gelu_tanh],
        a,
    )


def test_nan_and_infinity_pass_through():
    a = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    relu, largest, less = evaluate(lambda x: [mb.relu(x), mb.maximum(x, 1.0), x < 1.0], a)
    np.testing.assert_array_equal(relu, np.maximum(a, 0))
    np.testing.assert_array_equal(largest, np.maximum(a, 1))
    np.testing.assert_array_equal(less.astype(bool), a < 1)


def test_comparisons_and_where():
    a, b = RNG.integers(-3, 3, (4, 5)).astype(np.int32), RNG.integers(-3, 3, (4, 5)).astype(np.int32)
    check(
        lambda x, y: [
            mb.where(x < y, x, y), mb.where(x <= y, 1, 2), mb.cast(x > y, "i32"), mb.cast(x >= y, "f32"),
            mb.cast(mb.equal(x, y), "i32"), mb.cast(mb.not_equal(x, y), "i32"),
            mb.cast(mb.logical_and(x > 0, y > 0), "i32"),
            mb.cast(mb.logical_or(x > 0, mb.logical_not(y > 0)), "i32"),
        ],
        [
            np.minimum(a, b), np.where(a <= b, 1, 2), a > b, a >= b, a == b, a != b, (a > 0) & (b > 0),
            (a > 0) | ~(b > 0),
        ],
        a, b,
    )  # fmt: skip


def test_casts_keep_values():
    a = np.array([-2.75, -0.5, 0.0, 0.5, 3.25, 100.0], np.float32)
    check(
        lambda x: [
            mb.cast(x, "i32"),
            mb.cast(x, "f64"),
            mb.cast(mb.cast(x, "f16"), "f32"),
            mb.cast(mb.cast(x, "i1"), "i8"),
            mb.cast(mb.cast(x, "i64"), "f32"),
        ],
        [a.astype(np.int32), a, a, a != 0, np.trunc(a)],
        a,
    )


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_broadcasting_follows_numpy(data: st.DataObject):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    left = [e if data.draw(st.booleans()) else 1 for e in shape]
    right = [e if data.draw(st.booleans()) else 1 for e in shape][data.draw(st.integers(0, len(shape) - 1)) :]
    a, b = normal(*left), normal(*right)
    check(lambda x, y: x * y, a * b, a, b)


@pytest.mark.parametrize(("left", "right", "flags"), [
    ((3, 5), (5, 7), (False, False)),
    ((5, 3), (5, 7), (True, False)),
    ((3, 5), (7, 5), (False, True)),
    ((2, 3, 5), (2, 5, 7), (False, False)),
    ((2, 3, 5), (2, 7, 5), (False, True)),
    ((4, 2, 3, 5), (4, 2, 5, 7), (False, False)),
    ((4, 1, 3, 5), (2, 5, 7), (False, False)),
    ((2, 3, 5), (5, 7), (False, False)),
    ((2, 5, 3), (5, 7), (True, False)),
])  # fmt: skip
@pytest.mark.parametrize("dynamic", [False, True])
def test_matmul_follows_numpy(
    left: tuple[int, ...], right: tuple[int, ...], flags: tuple[bool, bool], dynamic: bool
):
    if dynamic and left[:-2] != right[:-2] and len(right) > 2:
        pytest.skip("leading extents 1 must be known to broadcast")
    a, b = normal(*left), normal(*right)
    want = (a.swapaxes(-1, -2) if flags[0] else a) @ (b.swapaxes(-1, -2) if flags[1] else b)
    check(lambda x, y: mb.matmul(x, y, *flags), want, a, b, dynamic=dynamic)


def test_narrow_floats_accumulate_in_f32():
    a = np.full((1, 4096), 1.0, np.float32).astype(ml_dtypes.bfloat16)
    total, product = evaluate(lambda x: [mb.reduce_sum(x, 1), mb.matmul(x, x, transpose_rhs=True)], a)
    assert float(total[0]) == 4096.0  # a bf16 accumulator would stop at 256
    assert float(product[0, 0]) == 4096.0


def test_integer_matmul_extends_before_it_multiplies():
    a, b = (RNG.integers(-128, 127, shape).astype(np.int8) for shape in ((3, 9), (9, 5)))
    check(lambda x, y: mb.matmul(x, y, dtype="i32"), a.astype(np.int32) @ b.astype(np.int32), a, b)


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    stride: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    dilation: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """NCHW by definition, window element by window element."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    features, depth, kh, kw = w.shape
    oh = (x.shape[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    out = np.zeros((x.shape[0], features, oh, ow), np.float64)
    for f in range(features):
        first = f // (features // groups) * depth
        for i in range(kh):
            for j in range(kw):
                part = x[:, first : first + depth, i * dilation[0] :, j * dilation[1] :]
                part = part[
                    :, :, : (oh - 1) * stride[0] + 1 : stride[0], : (ow - 1) * stride[1] + 1 : stride[1]
                ]
                out[:, f] += np.einsum("nchw,c->nhw", part, w[f, :, i, j])
    return out


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("channels", "features", "groups"), [(3, 5, 1), (6, 6, 6), (4, 6, 2)])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [
    ((1, 1), ((0, 0), (0, 0)), (1, 1)), ((2, 1), ((1, 2), (0, 3)), (1, 2)),
])  # fmt: skip
def test_conv2d_follows_its_definition(layout, channels, features, groups, stride, padding, dilation):
    x, w, bias = normal(2, channels, 9, 8), normal(features, channels // groups, 3, 2), normal(features)
    want = convolve(x, w, stride, padding, dilation, groups) + bias[:, None, None]
    if layout == "NHWC":
        x, w, want = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), want.transpose(0, 2, 3, 1)
    check(
        lambda a, b, c: mb.conv2d(
            a, b, c, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout
        ),
        want,
        np.ascontiguousarray(x),
        np.ascontiguousarray(w),
        bias,
    )


def test_conv2d_with_dynamic_batch_and_image():
    x, w = normal(2, 3, 9, 8), normal(4, 3, 3, 3)
    with mb.Graph("net") as graph:
        image = graph.input("image", ("n", 3, "h", "w"))
        graph.result(mb.conv2d(image, w, stride=2, padding=1))
    (found,) = run(graph, x)
    np.testing.assert_allclose(
        found, convolve(x, w, (2, 2), ((1, 1), (1, 1)), (1, 1), 1), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pools_follow_their_definitions(layout):
    x = normal(2, 3, 7, 8)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    largest, inside = np.nanmax(windows, (4, 5)), np.nanmean(windows, (4, 5))
    everywhere = np.nansum(windows, (4, 5)) / 9
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1)
    check(
        lambda a: [
            mb.max_pool2d(a, 3, 2, 1, layout=layout),
            mb.avg_pool2d(a, 3, 2, 1, layout=layout),
            mb.avg_pool2d(a, 3, 2, 1, layout=layout, count_include_pad=False),
        ],
        [part.transpose(order) for part in (largest, everywhere, inside)],
        np.ascontiguousarray(x.transpose(order)),
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_follow_numpy(dynamic: bool):
    a = normal(3, 5, 7)
    check(
        lambda x: [
            mb.reduce_sum(x), mb.reduce_sum(x, 1), mb.reduce_sum(x, (0, -1), keepdims=True),
            mb.reduce_max(x, 2), mb.reduce_min(x, (1, 2), keepdims=True),
            mb.reduce_prod(x, 0), mb.reduce_mean(x, (0, 2)),
        ],
        [
            a.sum(), a.sum(1), a.sum((0, 2), keepdims=True), a.max(2), a.min((1, 2), keepdims=True),
            a.prod(0), a.mean((0, 2)),
        ],
        a, dynamic=dynamic,
    )  # fmt: skip


def test_integer_reductions_start_at_the_ends_of_the_dtype():
    a = RNG.integers(-100, -50, (3, 5)).astype(np.int8)
    check(lambda x: [mb.reduce_max(x, 1), mb.reduce_min(-x, 1)], [a.max(1), (-a).min(1)], a)


@pytest.mark.parametrize("dynamic", [False, True])
def test_softmax_and_layernorm_follow_their_definitions(dynamic: bool):
    a, scale, shift = normal(3, 5, 7), normal(7), normal(7)
    powers = np.exp(a - a.max(1, keepdims=True))
    normed = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * scale + shift
    check(
        lambda x, s, b: [mb.softmax(x, 1), mb.layernorm(x, s, b)],
        [powers / powers.sum(1, keepdims=True), normed],
        a,
        scale,
        shift,
        dynamic=dynamic,
    )


def test_movement_follows_numpy():
    a, b = normal(4, 6, 5), normal(4, 2, 5)
    check(
        lambda x, y: [
            mb.transpose(x), mb.transpose(x, (1, 0, 2)), mb.reshape(x, (2, 2, -1)), mb.reshape(x, (5, 6, 4)),
            mb.reshape(x, (4, 1, 6, 5, 1)), mb.reshape(x, (-1,)), mb.pad(x, (0, 1, 2), (3, 0, 1), 1.5),
            mb.concat([x, y], 1), mb.slice(x, (1, 0), (3, None), (1, 2)), x[1], x[..., -1],
            x[1:3, None, ::3], x[:, 2:100], mb.broadcast_to(y[:, :1], (4, 3, 5)),
        ],
        [
            a.T, a.transpose(1, 0, 2), a.reshape(2, 2, -1), a.reshape(5, 6, 4),
            a.reshape(4, 1, 6, 5, 1), a.reshape(-1), np.pad(a, ((0, 3), (1, 0), (2, 1)), constant_values=1.5),
            np.concatenate([a, b], 1), a[1:3, ::2], a[1], a[..., -1], a[1:3, None, ::3], a[:, 2:100],
            np.broadcast_to(b[:, :1], (4, 3, 5)),
        ],
        a, b,
    )  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 6), max_size=4), st.randoms(use_true_random=False))
def test_reshape_groups_cover_all_axes_with_equal_products(shape: list[int], random):
    target = [1, *shape]
    random.shuffle(target)
    groups = movement._groups(mb.Graph("g"), tuple(shape), tuple(target))
    if groups:
        assert [axis for source, _ in groups for axis in source] == list(range(len(shape)))
        assert [axis for _, goal in groups for axis in goal] == list(range(len(target)))
    assert all(
        math.prod(shape[i] for i in source) == math.prod(target[i] for i in goal) for source, goal in groups
    )


def test_dynamic_reshape_folds_and_splits_named_extents():
    a = normal(2, 3, 8)
    with mb.Graph("net") as graph:
        x = graph.input("x", ("batch", "time", 8))
        flat = mb.reshape(x, (-1, 8))
        assert flat.shape == ("(batch*time)", 8)
        heads = mb.transpose(mb.reshape(flat, ("batch", "time", 2, 4)), (0, 2, 1, 3))
        graph.result(flat)
        graph.result(heads)
    found = run(graph, a)
    np.testing.assert_array_equal(found[0], a.reshape(-1, 8))
    np.testing.assert_array_equal(found[1], a.reshape(2, 3, 2, 4).transpose(0, 2, 1, 3))


def test_large_constants_stay_arrays():
    weights = normal(64, 32)
    with mb.Graph("net") as graph:
        x = graph.input("x", (3, 64))
        graph.result(x @ graph.constant(weights, name="w"), name="y")
    assert graph.parameters["w"] is weights
    assert weights.tobytes().hex().upper() not in graph.to_mlir()
    program = graph.program()
    assert np.shares_memory(program.parameters["w"], weights)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool", "bfloat16"])
def test_constants_of_every_dtype_arrive_exactly(dtype: str):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    small = (normal(5) * 50).astype(kind)
    large = np.tile((normal(91) * 50).astype(kind), 97)
    graph = mb.Graph("net")
    graph.input("x", (1,))
    graph.result(graph.constant(small))
    graph.result(graph.constant(large))
    program = graph.program()
    text = str(program.module)
    assert text.count("motet.parameter") == 1
    assert program.parameters["constant_0"].tobytes() == large.tobytes()
    if dtype == "float64":
        assert all(repr(float(v))[:8].rstrip("0") in text for v in small)


def test_a_serialised_graph_is_the_same_program():
    weights = normal(64, 32)
    with mb.Graph("net") as graph:
        x = graph.input("x", ("n", 64))
        graph.result(mb.relu(x @ graph.constant(weights) + normal(32)))
    data, a = graph.serialize(), normal(3, 64)
    program = load_source(data, "net.graph")
    np.testing.assert_array_equal(run_oracle(program, "net", [a])[0], run(graph, a)[0])
    for end in (len(data) - 1, len(data) // 2, 100):
        with pytest.raises(CompileError, match=r"not a graph of motet\.builder"):
            load_source(data[:end], "net.graph")


def test_devices_are_kept_as_attributes():
    with mb.Graph("net") as graph:
        x = graph.input("x", (4,), device="gpu")
        graph.result(mb.relu(mb.exp(x, device="npu")), device="host")
    text = graph.to_mlir()
    assert 'motet.affinity = "gpu"' in text
    assert text.count('motet.affinity = "npu"') == 1
    assert text.count('motet.affinity = "host"') == 1


def test_operations_carry_the_callers_line():
    with mb.Graph("net") as graph:
        x = graph.input("x", (4,))
        graph.result(mb.exp(x))
    assert f'"{__file__}":' in graph.to_mlir()


@pytest.mark.parametrize(("build", "message"), [
    (lambda x, y: x @ y, "matmul: inner extents differ: lhs is 2×3, rhs is 2×3; expected rhs …×3×N"),
    (lambda x, y: x + mb.reshape(y, (3, 2)), "add: shapes do not broadcast: 2×3 and 3×2"),
    (lambda x, y: x + mb.cast(y, "f64"), "add: dtypes differ: 2×3 f32, 2×3 f64; expected one dtype"),
    (lambda x, y: mb.reshape(x, (7,)), "reshape: 2×3 has not as many elements as 7"),
    (lambda x, y: mb.reshape(x, ("n", 3)), "reshape: extent 'n' is unknown"),
    (lambda x, y: mb.concat([x, y], 2), "concat: axis 2 is not in a tensor of rank 2; expected -2 to 1"),
    (lambda x, y: mb.exp(mb.cast(x, "i32")), "exp: operand is 2×3 i32; expected a floating dtype"),
    (lambda x, y: mb.conv2d(x, y), "conv2d: x is 2×3 f32; expected rank 4"),
    (lambda x, y: mb.cast(x, "i32") + 1.5, "add: the number 1.5 does not fit i32"),
    (lambda x, y: mb.transpose(x, (0, 0)), "transpose: permutation [0, 0] of 2×3; expected each axis once"),
    (lambda x, y: x[2], "index: index 2 on axis 0 of 2×3; expected -2 to 1"),
    (lambda x, y: x + "three", "add: operand of type str; expected a tensor, an array or a number"),
    (lambda x, y: mb.cast(x, "f33"), "dtype 'f33': unknown"),
    (lambda x, y: mb.where(x, x, y), "where: the condition is f32; expected i1"),
])  # fmt: skip
def test_a_mistake_names_operator_shapes_and_line(build: Callable[..., mb.Tensor], message: str):
    graph = mb.Graph("net")
    x, y = graph.input("x", (2, 3)), graph.input("y", (2, 3))
    with pytest.raises(CompileError) as caught:
        build(x, y)
    assert message in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_a_graph_without_result_is_refused():
    with pytest.raises(CompileError, match="graph net: no result"), mb.Graph("net") as graph:
        graph.input("x", (2,))


def test_tensors_of_two_graphs_do_not_mix():
    left, right = mb.Graph("left").input("x", (2,)), mb.Graph("right").input("x", (2,))
    with pytest.raises(CompileError, match="graphs left and right"):
        mb.add(left, right)
