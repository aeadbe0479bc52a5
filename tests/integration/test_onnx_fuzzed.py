"""Classes of defects that the fuzzer found in the ONNX front end, each in the smallest form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import motet
from motet.errors import CallError, CompileError

F32 = onnx.TensorProto.FLOAT
INF = float("inf")


def _compiled(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[tuple[str, int, Sequence[int | str]]],
    results: Sequence[tuple[str, int, Sequence[int | str] | None]], constants: dict[str, np.ndarray], opset: int = 19,
) -> motet.Session:
    graph = onnx.helper.make_graph(
        nodes, "main", [onnx.helper.make_tensor_value_info(*each) for each in inputs],
        [onnx.helper.make_tensor_value_info(*each) for each in results],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    return motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))


def test_reductions_pools_and_narrow_functions_keep_their_range() -> None:
    node = onnx.helper.make_node
    x = np.array([[800.0, 801.0, -3.0], [-INF, -INF, -INF], [INF, 0.0, 1.0]], np.float32)
    narrow = np.array([-11.5, -14.0, 0.0, 11.5], np.float16)
    low = np.array([[[-INF, -INF, 1.0]]], np.float32)
    ceiled = np.array([[[2.0, 5.0]]], np.float32)
    volume = np.array([200, 7, 9, 255], np.uint8).reshape(1, 1, 2, 1, 2)
    nodes = [
        node("ReduceLogSumExp", ["x"], ["r0"], axes=[1], keepdims=0),
        node("ReduceLogSum", ["c"], ["r1"], axes=[1]), node("Sigmoid", ["n"], ["r2"]),
        node("MaxPool", ["l"], ["r3"], kernel_shape=[2], pads=[1, 0]),
        node("AveragePool", ["c"], ["r4"], kernel_shape=[3], strides=[3], pads=[2, 0], ceil_mode=1),
        node("MaxPool", ["v"], ["r5"], kernel_shape=[2, 1, 2]),
    ]
    kinds = [("x", F32, x), ("n", onnx.TensorProto.FLOAT16, narrow), ("l", F32, low), ("c", F32, ceiled),
             ("v", onnx.TensorProto.UINT8, volume)]
    given = [F32, F32, onnx.TensorProto.FLOAT16, F32, F32, onnx.TensorProto.UINT8]
    session = _compiled(
        nodes, [(name, kind, array.shape) for name, kind, array in kinds],
        [(f"r{number}", kind, None) for number, kind in enumerate(given)], {}, opset=17,
    )
    log_sum_exp, log_sum, sigmoid, most, mean, pooled = session(*(array for _, _, array in kinds))
    np.testing.assert_allclose(log_sum_exp, [801 + np.log1p(np.exp(-1.0)), -INF, INF], 1e-6)
    np.testing.assert_allclose(log_sum, np.log(ceiled), 1e-6)
    np.testing.assert_allclose(sigmoid, 1 / (1 + np.exp(-narrow.astype(np.float64))), 1e-3, 6e-8)
    np.testing.assert_array_equal(most, [[[-INF, -INF, 1.0]]])
    np.testing.assert_allclose(mean, [[[2.0, 5.0]]], 1e-6)
    np.testing.assert_array_equal(pooled.reshape(-1), [255])


def test_constants_are_evaluated_as_their_operators_are_defined() -> None:
    node = onnx.helper.make_node
    x = np.array([100.0, -100.0, 0.5, -3.0], np.float32)
    image = np.array([[[np.nan, 1.0, 2.0, INF]]], np.float32)
    ops = ["Softplus", "Sigmoid", "Erf", "Mish", "Selu", "Tanh"]
    nodes = [node(op, ["x"], [f"{op}0"]) for op in ops] + [node("Identity", [f"{op}0"], [op]) for op in ops]
    nodes += [node("MaxPool", ["image"], ["p0"], kernel_shape=[2]), node("Identity", ["p0"], ["p"])]
    session = _compiled(nodes, [], [(name, F32, None) for name in (*ops, "p")], {"x": x, "image": image})
    softplus, sigmoid, _, mish, _, tanh, pooled = session()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(softplus, np.logaddexp(wide, 0), 2e-7, 1e-45)
    np.testing.assert_allclose(sigmoid, np.exp(-np.logaddexp(-wide, 0)), 2e-7, 1e-45)
    np.testing.assert_allclose(mish, wide * np.tanh(np.logaddexp(wide, 0)), 2e-7, 1e-43)
    np.testing.assert_allclose(tanh, np.tanh(wide), 2e-7)
    np.testing.assert_array_equal(pooled, [[[np.nan, 2.0, INF]]])


def test_constant_filters_of_one_pixel_are_transposed() -> None:
    w = np.array([[[1.0], [2.0]], [[3.0], [4.0]]], np.float32)
    x = np.array([[[1.0, 0.0], [0.0, 1.0]]], np.float32)
    node = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"])
    y = _compiled([node], [("x", F32, x.shape)], [("y", F32, None)], {"w": w})(x)
    np.testing.assert_array_equal(y, np.einsum("bip,io->bop", x, w[..., 0]))


@pytest.mark.parametrize(("op", "case"), [
    ("Conv", "group"), ("Einsum", "letter"), ("ScatterND", "index"), ("Gather", "one"), ("Slice", "declared"),
])  # fmt: skip
def test_calls_that_an_operator_does_not_allow_are_refused(op: str, case: str) -> None:
    node, ones = onnx.helper.make_node, np.ones
    index = np.array([[1, 2]], np.int64)
    numbers = {name: np.array([value], np.int64) for name, value in {"a": -12, "b": -6, "c": 1}.items()}
    made, inputs, constants, right, wrong = {
        "group": (node(op, ["x", "w"], ["y"], group=4), [("x", F32, [1, "n", 1, 1, 1])],
                  {"w": ones((4, 1, 1, 1, 1), np.float32)}, [ones((1, 4, 1, 1, 1))], [ones((1, 17, 1, 1, 1))]),
        "letter": (node(op, ["w", "x"], ["y"], equation="ab,dacb->dc"), [("x", F32, [1, "n", "n", "m"])],
                   {"w": ones((2, 3), np.float32)}, [ones((1, 2, 2, 3))], [ones((1, 3, 3, 2))]),
        "index": (node(op, ["x", "i", "u"], ["y"]), [("x", F32, [3, "n"]), ("u", F32, [1])], {"i": index},
                  [ones((3, 3)), ones(1)], [ones((3, 2)), ones(1)]),
        "one": (node(op, ["x", "i"], ["y"]), [("x", F32, [1, 2]), ("i", onnx.TensorProto.INT64, [1])], {},
                [ones((1, 2)), np.array([-1])], [ones((1, 2)), np.array([-2])]),
        "declared": (node(op, ["x", "a", "b", "c"], ["y"]), [("x", F32, [1, "n"])], numbers,
                     [ones((1, 15))], [ones((1, 8))]),
    }[case]  # fmt: skip
    declared = [1, 6] if case == "declared" else None
    session = _compiled([made], inputs, [("y", F32, declared)], constants)
    session(*(a.astype(np.int64 if a.dtype == np.int64 else np.float32) for a in right))
    with pytest.raises(CallError):
        session(*(a.astype(np.int64 if a.dtype == np.int64 else np.float32) for a in wrong))


def test_integers_are_pooled_over_their_least_number_and_softplus_of_float64_is_exact() -> None:
    node = onnx.helper.make_node
    signed = np.array([[[-6, -9, -1]]], np.int8)
    unsigned = np.array([200, 7, 9, 255, 3], np.uint8).reshape(1, 1, 5, 1)
    wide = np.array([-800.0, -40.0, -1.0, 0.0, 19.0, 25.2, 40.0, 800.0, INF, -INF])
    kinds = [("s", onnx.TensorProto.INT8, signed), ("u", onnx.TensorProto.UINT8, unsigned),
             ("x", onnx.TensorProto.DOUBLE, wide)]
    nodes = [
        node("MaxPool", ["s"], ["r0"], kernel_shape=[2], pads=[1, 1]),
        node("MaxPool", ["u"], ["r1"], kernel_shape=[3, 1]), node("Softplus", ["x"], ["r2"]),
    ]
    session = _compiled(
        nodes, [(name, kind, array.shape) for name, kind, array in kinds],
        [(f"r{number}", kind, None) for number, (_, kind, _) in enumerate(kinds)], {},
    )
    least, most, softplus = session(signed, unsigned, wide)
    np.testing.assert_array_equal(least, [[[-6, -6, -1, -1]]])
    np.testing.assert_array_equal(most.reshape(-1), [200, 255, 255])
    np.testing.assert_allclose(softplus, np.logaddexp(wide, 0), 1e-15)


@pytest.mark.parametrize("node", [
    onnx.helper.make_node("Reshape", ["x", "extents"], ["y"]), onnx.helper.make_node("Gather", ["x", "places"], ["y"]),
    onnx.helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=1), onnx.helper.make_node("Flatten", ["x"], ["y"]),
    onnx.helper.make_node("MatMul", ["matrix", "x"], ["y"]),
], ids=lambda node: node.op_type)  # fmt: skip
def test_a_tensor_without_elements_next_to_a_dynamic_extent_is_refused_by_name(node: onnx.NodeProto) -> None:
    constants = {"extents": np.array([0, 0, 0, 2, 2]), "places": np.zeros((1, 1, 0), np.int64),
                 "matrix": np.ones((2, 3), np.float32)}
    used = {name: constants[name] for name in node.input if name in constants}
    shape = ["n", 0, 3, 4] if node.op_type == "MatMul" else [1, "n", 0, 4]
    with pytest.raises(CompileError, match=rf"{node.op_type} of a tensor without elements .* expected static extents"):
        _compiled([node], [("x", F32, shape)], [("y", F32, None)], used)


@pytest.mark.parametrize("operator", ["BlackmanWindow", "HammingWindow", "HannWindow"])
def test_windows_are_rounded_once_to_any_type(operator: str) -> None:
    types = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "uint64")
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in types]
    nodes = [onnx.helper.make_node(operator, [size], [f"{name}_{size}"], output_datatype=kind)
             for name, kind in zip(types, kinds, strict=True) for size in ("n", "five")]  # fmt: skip
    results = [(node.output[0], node.attribute[0].i, None) for node in nodes]
    session = _compiled(nodes, [("n", onnx.TensorProto.UINT8, [])], results, {"five": np.array(5, np.int32)})
    for size in (1, 2, 17, 200):
        for node, found in zip(nodes, session(np.array(size, np.uint8)), strict=True):
            count = 5 if node.input[0] == "five" else size
            angle = 2 * np.pi * np.arange(count) / count
            exact = {"HannWindow": 0.5 - 0.5 * np.cos(angle), "HammingWindow": 25 / 46 - 21 / 46 * np.cos(angle),
                     "BlackmanWindow": 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)}[operator]  # fmt: skip
            unit = {"float16": 2**-11, "bfloat16": 2**-8}.get(found.dtype.name, 2**-23)
            if found.dtype.kind in "iu":
                np.testing.assert_array_equal(found[np.abs(exact - 1) > 1e-6], 0)
            else:
                np.testing.assert_allclose(found.astype(np.float64), exact, rtol=unit, atol=3e-7)


def test_names_of_several_lines_are_one_in_errors() -> None:
    session = _compiled([onnx.helper.make_node("Add", ["a\nb", "c"], ["y"])], [("a\nb", F32, ["n"]), ("c", F32, [1])],
                        [("y", F32, None)], {})  # fmt: skip
    for arguments in ((), (np.zeros(2, np.float32),), (np.zeros((2, 2), np.float32), np.zeros(1, np.float32))):
        with pytest.raises(CallError, match=r"a\\nb") as caught:
            session(*arguments)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("equation", "shapes"), [
    ("abc,dce->bdce", ([0, 15, 19], [7, 19, "e"])), ("abc,dce->bdce", (["a", 15, 0], [7, "c", 5])),
    ("ij,jk->ik", (["n", 0], [0, "m"])), ("ab->b", ([0, "b"],)), ("ab->ba", (["a", 0],)),
    ("ab,bc", ([0, "b"], ["b", 1])),
])  # fmt: skip
def test_einsum_without_elements_is_zeros_of_the_extents_of_its_letters(
    equation: str, shapes: Sequence[Sequence[int | str]]
) -> None:
    names, kinds = "xy"[: len(shapes)], {"r": F32, "bytes": onnx.TensorProto.INT8}
    nodes = [onnx.helper.make_node("Einsum", [*names], ["r"], equation=equation)]
    nodes += [onnx.helper.make_node("Cast", [name], [f"{name}8"], to=onnx.TensorProto.INT8) for name in names]
    nodes += [onnx.helper.make_node("Einsum", [f"{name}8" for name in names], ["bytes"], equation=equation)]
    results = [(name, kind, None) for name, kind in kinds.items()]
    session = _compiled(nodes, [(name, F32, shape) for name, shape in zip(names, shapes, strict=True)], results, {})
    for size in (0, 1, 3):
        arrays = [np.full([size if isinstance(e, str) and e != "c" else 0 if e == "c" else e for e in shape], np.nan,
                          np.float32) for shape in shapes]  # fmt: skip
        for found in session(*arrays):
            np.testing.assert_array_equal(found, np.einsum(equation, *arrays))


def test_extents_behind_tensors_joined_with_themselves_are_measured_once() -> None:
    """A product of none of their elements keeps their extents, which are known by 60 nodes and 2^60 paths."""
    node = onnx.helper.make_node
    nodes = [node("Concat", [f"x{each}"] * 2, [f"x{each + 1}"], axis=0) for each in range(60)]
    nodes += [node("Slice", ["x60", "zero", "zero"], ["none"]), node("MatMul", ["empty", "x60"], ["y"])]
    constants = {"zero": np.array([0]), "empty": np.zeros((0, 8), np.float32)}
    session = _compiled(nodes, [("x0", F32, ["n", 2])], [("y", F32, None)], constants)
    with pytest.raises(CallError, match=r"MatMul"):
        session(np.ones((3, 2), np.float32))


def test_gathers_along_one_element_keep_their_order_and_name_the_index_that_was_given() -> None:
    node, kinds = onnx.helper.make_node, onnx.TensorProto
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    flags, letters = np.array([[True, False]]), np.array([[200], [7]], np.uint8)
    places, place = np.array([[0, -1], [-1, 0]], np.int32), np.array(-1)
    nodes = [
        node("Gather", ["x", "places"], ["r0"], "rows", axis=1), node("Gather", ["flags", "place"], ["r1"]),
        node("Gather", ["letters", "places"], ["r2"], axis=-1),
    ]
    inputs = [("x", F32, ["n", 1, 3]), ("flags", kinds.BOOL, [1, "m"]), ("letters", kinds.UINT8, ["n", 1]),
              ("places", kinds.INT32, [2, "k"]), ("place", kinds.INT64, [])]
    results = [("r0", F32, None), ("r1", kinds.BOOL, None), ("r2", kinds.UINT8, None)]
    session = _compiled(nodes, inputs, results, {})
    for found, wanted in zip(session(x, flags, letters, places, place), (
        np.take(x, places, 1), flags[0], np.take(letters, places, 1),
    ), strict=True):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(CallError, match=r'Gather "rows": index -2 is outside of an axis of extent 1'):
        session(x, flags, letters, np.array([[0, 0], [0, -2]], np.int32), place)


def test_more_than_there_are_is_refused_though_only_the_shape_is_asked_for() -> None:
    node = onnx.helper.make_node
    nodes = [node("TopK", ["x", "k"], ["v", "places"], axis=0), node("Shape", ["v"], ["y"])]
    session = _compiled(nodes, [("x", F32, ["n", 2])], [("y", onnx.TensorProto.INT64, None)], {"k": np.array([3])})
    np.testing.assert_array_equal(session(np.ones((5, 2), np.float32)), [3, 2])
    with pytest.raises(CallError, match="axis 0 of input 0 must be at least 3"):
        session(np.ones((2, 2), np.float32))


@pytest.mark.parametrize("given", [True, False])
def test_a_scale_of_dynamic_extents_is_that_of_the_model_or_of_the_call(*, given: bool) -> None:
    node = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    scales, inputs = np.array([1, 1, 2], np.float32), [("x", F32, [1, 1, "n"])]
    session = _compiled([node], [*inputs, ("scales", F32, [3])] if given else inputs, [("y", F32, None)],
                        {} if given else {"scales": scales})  # fmt: skip
    for count in (1, 5):
        x = np.arange(count, dtype=np.float32).reshape(1, 1, count)
        np.testing.assert_array_equal(session(x, scales) if given else session(x), x.repeat(2, 2))
    if given:
        np.testing.assert_array_equal(session(x, np.array([1, 3, 0.5], np.float32)), x[:, :, 0:3:2].repeat(3, 1))


def test_reductions_along_one_element_have_a_lowering_for_every_type() -> None:
    operators, kinds = ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"], onnx.TensorProto
    x, whole = np.array([[3.0]], np.float32), np.array([[7]], np.int32)
    nodes = [onnx.helper.make_node(op, [name], [f"{op}-{name}"], axes=[0]) for name in "xw" for op in operators]
    results = [(node.output[0], F32 if node.input[0] == "x" else kinds.INT32, None) for node in nodes]
    session = _compiled(nodes, [("x", F32, [1, 1]), ("w", kinds.INT32, [1, 1])], results, {}, opset=17)
    found = [float(array.item()) for array in session(x, whole)]
    np.testing.assert_allclose(found, [3.0, np.log(3.0), 3.0, 7.0, 1.0, 7.0], 1e-6)


def test_constants_that_are_quantised_saturate() -> None:
    """Also where the quotient overflows, of which ONNX's evaluator makes 0."""
    x = np.array([[3.4e38, -3.4e38, np.inf, -np.inf], [1e-45, 300.0, -300.0, 5.0]], np.float32)
    scale, zero = np.array([0.0625, 2.0], np.float32), np.array([55, 240], np.uint8)
    node = onnx.helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], axis=0)
    use = onnx.helper.make_node("Concat", ["q", "more"], ["y"], axis=0)
    graph = onnx.helper.make_graph(
        [node, use], "g", [onnx.helper.make_tensor_value_info("more", onnx.TensorProto.UINT8, [1, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [3, 4])],
        [onnx.numpy_helper.from_array(array, name) for name, array in (("x", x), ("scale", scale), ("zero", zero))],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    found = motet.load(motet.compile(model.SerializeToString(), cache=False))(np.zeros((1, 4), np.uint8))
    exact = np.rint(x.astype(np.float64) / scale[:, None]) + zero[:, None].astype(np.float64)
    np.testing.assert_array_equal(found[:2], np.clip(exact, 0, 255).astype(np.uint8))


def test_factors_of_gemm_that_overflow_are_applied_to_the_product() -> None:
    """A constant that is scaled first becomes an infinity, of which a sum with another one is NaN; or 0."""
    w, c = np.array([[INF, 1.0], [-3e38, 1.0]], np.float32), np.array([[0.0, 3e38]], np.float32)
    v = np.array([[1e-38], [3e-38]], np.float32)
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w", "c"], ["y"], alpha=2.0, beta=0.5),
        onnx.helper.make_node("Gemm", ["x", "v"], ["z"], alpha=1e-8),
    ]
    x = np.array([[1.0, 0.5], [0.25, 5e37]], np.float32)
    results = [("y", F32, None), ("z", F32, None)]
    y, z = _compiled(nodes, [("x", F32, x.shape)], results, {"w": w, "c": c, "v": v})(x)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(y[0, 0], INF)
    np.testing.assert_allclose(y[:, 1], 2 * (wide @ w[:, 1].astype(np.float64)) + 1.5e38, 1e-6)
    np.testing.assert_allclose(z, 1e-8 * (wide @ v.astype(np.float64)), 1e-6, 1e-45)


def test_windows_of_dynamic_extents_have_loops_as_long_as_what_nothing_reads() -> None:
    node, kind = onnx.helper.make_node, onnx.TensorProto.INT64
    nodes = [node("GatherElements", ["x", "i"], ["v"], axis=0), node("GlobalMaxPool", ["v"], ["y"])]
    session = _compiled(nodes, [("x", F32, ["n", 3, "n"]), ("i", kind, [1, 2, "n"])], [("y", F32, None)], {})
    for n in (5, 2):
        x = np.random.default_rng(n).normal(size=(n, 3, n)).astype(np.float32)
        places = np.arange(2 * n).reshape(1, 2, n) % n
        wanted = np.take_along_axis(x[:, :2], places, 0).max(2, keepdims=True)
        np.testing.assert_array_equal(session(x, places), wanted)


def test_a_constant_hard_swish_of_float64_has_a_sixth_of_its_digits() -> None:
    x = np.array([2.23325941, -1.5, 4.0, -4.0])
    nodes = [onnx.helper.make_node("HardSwish", ["x"], ["v"]), onnx.helper.make_node("Identity", ["v"], ["y"])]
    found = _compiled(nodes, [], [("y", onnx.TensorProto.DOUBLE, None)], {"x": x})()
    np.testing.assert_allclose(found, x * np.clip(x / 6 + 0.5, 0, 1), 1e-15)


def _windows_of(x: np.ndarray, pads: tuple[int, int], stride: int, ceil: int, filler: float) -> np.ndarray:
    """The windows of 5 along the last axis, as ONNX's definition of MaxPool places them."""
    before, after = pads
    free = x.shape[-1] + before + after - 5
    count = (-(-free // stride) if ceil else free // stride) + 1
    if ceil and (count - 1) * stride >= x.shape[-1] + before:
        count -= 1
    room = [(0, 0)] * (x.ndim - 1) + [(before, after + stride)]
    padded = np.pad(x.astype(np.float64), room, constant_values=filler)
    return np.stack([padded[..., k * stride : k * stride + 5] for k in range(count)], -2)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize(("pads", "stride"), [((3, 2), 1), ((3, 2), 3), ((1, 0), 3), ((2, 2), 2)])
def test_pools_over_dynamic_extents_place_windows_by_uneven_pads(pads: tuple[int, int], stride: int, ceil: int) -> None:
    kinds = {"f": F32, "u": onnx.TensorProto.UINT8, "s": onnx.TensorProto.INT8}
    given: dict[str, Any] = {
        "kernel_shape": [1, 5], "pads": [0, pads[0], 0, pads[1]], "strides": [1, stride], "ceil_mode": ceil,
    }
    nodes = [onnx.helper.make_node("MaxPool", [name], [f"y{name}"], **given) for name in kinds]
    nodes.append(onnx.helper.make_node("LpPool", ["f"], ["yl"], **given))
    inputs = [(name, kind, [1, 1, 2, "n"]) for name, kind in kinds.items()]
    results = [(f"y{name}", kind, None) for name, kind in (*kinds.items(), ("l", F32))]
    session = _compiled(nodes, inputs, results, {})
    for extent in (9, 5):
        numbers = np.random.default_rng(extent).integers(-90, -1, (1, 1, 2, extent))
        floats, unsigned, signed = numbers.astype(np.float32), (-numbers).astype(np.uint8), numbers.astype(np.int8)
        *most, lengths = session(floats, unsigned, signed)
        for found, x in zip(most, (floats, unsigned, signed), strict=True):
            np.testing.assert_array_equal(found, _windows_of(x, pads, stride, ceil, -INF).max(-1))
        squares = _windows_of(floats, pads, stride, ceil, 0.0) ** 2
        np.testing.assert_allclose(lengths, np.sqrt(squares.sum(-1)), 1e-6)
