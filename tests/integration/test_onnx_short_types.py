"""ONNX models on 8-bit floats and types of 4 and 2 bits: conversions bit by bit, quantisation, movement, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CompileError

EIGHT = {T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, T.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
         T.FLOAT8E5M2: ml_dtypes.float8_e5m2, T.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz}
HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def model(nodes: list[Any], inputs: dict[str, np.ndarray], outputs: dict[str, int], **options: Any) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                           options.get("dims", {}).get(name, array.shape))
             for name, array in inputs.items()]
    taken = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in options.get("constants", {}).items()]
    graph = helper.make_graph(nodes, "graph", given, taken, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=11)


def load(proto: onnx.ModelProto) -> motet.Session:
    return motet.load(motet.compile(proto, devices="host{cpu=x86-64-v3}", cache=False), threads=1)


def same(result: np.ndarray, expected: np.ndarray, what: str = "") -> None:
    assert result.dtype == expected.dtype, what
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64), err_msg=what)


def difficult() -> np.ndarray:
    """Numbers of float32: what is exact, what is half way and next to it, special ones, and random bits."""
    found = [HALF.astype(np.float32), np.random.default_rng(13).integers(0, 1 << 32, 4096, np.uint32).view(np.float32)]
    for dtype in EIGHT.values():
        exact = np.unique(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
        exact = exact[np.isfinite(exact)]
        for one in (exact, (exact[1:] + exact[:-1]) / 2):
            found += [one, *(np.nextafter(one, np.float32(end)) for end in (np.inf, -np.inf))]
    return np.concatenate(found)


def test_every_rounding_to_eight_bits() -> None:
    inputs = {"single": difficult()}  # which has every number of float16
    nodes = [
        helper.make_node("Cast", [name], [f"{name}{kind}{saturate}"], to=kind, saturate=saturate)
        for name in inputs for kind in EIGHT for saturate in (0, 1)
    ]
    session = load(model(nodes, inputs, {node.output[0]: node.attribute[1].i for node in nodes}))
    results = iter(session(*inputs.values()))
    for name, array in inputs.items():
        for dtype in EIGHT.values():
            for saturate in (0, 1):
                largest = float(ml_dtypes.finfo(dtype).max)
                with np.errstate(all="ignore"):
                    limited = np.clip(array.astype(np.float64), -largest, largest) if saturate else array
                    expected = limited.astype(array.dtype).astype(dtype).view(np.uint8)
                np.testing.assert_array_equal(next(results).view(np.uint8), expected, f"{name} to {dtype.__name__}")


def test_float64_is_rounded_once() -> None:
    just_below = np.nextafter(1.0625, 0)  # half way between 1 and 1.125 as a float32
    x = np.array([just_below, 1.0625, -just_below, 432.0, np.nextafter(432.0, 0), 1e300, 1e-300, np.nan])
    node = helper.make_node("Cast", ["x"], ["y"], to=T.FLOAT8E4M3FN)
    same(load(model([node], {"x": x}, {"y": T.FLOAT8E4M3FN}))(x),
         np.array([1, 1, -1, 448, 416, 448, 0, np.nan], ml_dtypes.float8_e4m3fn))


def test_powers_of_two_round_as_they_are_asked_to() -> None:
    x = np.array([1, 1.1, 1.5, 1.75, 3, 2.0**-127, 2.0**-128, 0, 3e38, np.inf, np.nan], np.float32)
    least, most = 2.0**-127, 2.0**127
    expected = {
        ("up", 1): [1, 2, 2, 2, 4, least, least, least, most, most, np.nan],
        ("down", 1): [1, 1, 1, 1, 2, least, least, least, most, most, np.nan],
        ("nearest", 1): [1, 1, 2, 2, 4, least, least, least, most, most, np.nan],
        ("nearest", 0): [1, 1, 2, 2, 4, least, np.nan, np.nan, np.nan, np.nan, np.nan],
    }
    nodes = [
        helper.make_node("Cast", ["x"], [f"{mode}{saturate}"], to=T.FLOAT8E8M0, round_mode=mode, saturate=saturate)
        for mode, saturate in expected
    ]
    results = load(model(nodes, {"x": x}, {node.output[0]: T.FLOAT8E8M0 for node in nodes}))(x)
    for result, wanted in zip(results, expected.values(), strict=True):
        same(result.astype(np.float64), np.array(wanted))


def test_casts_between_all_kinds() -> None:
    rng = np.random.default_rng(5)
    kinds = {T.INT4: ml_dtypes.int4, T.UINT4: ml_dtypes.uint4, T.INT2: ml_dtypes.int2, T.UINT2: ml_dtypes.uint2,
             T.FLOAT4E2M1: ml_dtypes.float4_e2m1fn, T.FLOAT8E5M2: ml_dtypes.float8_e5m2}
    inputs = {f"x{kind}": rng.integers(0, 4, 24).astype(dtype) for kind, dtype in kinds.items()}
    inputs["word"] = rng.integers(-200, 200, 24).astype(np.int16)
    targets = {T.FLOAT16: np.float16, T.INT32: np.int32, T.INT4: ml_dtypes.int4, T.UINT2: ml_dtypes.uint2,
               T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn}
    nodes = [helper.make_node("Cast", [name], [f"{name}to{to}"], to=to) for name in inputs for to in targets]
    session = load(model(nodes, inputs, {node.output[0]: node.attribute[0].i for node in nodes}))
    results = iter(session(*inputs.values()))
    for name, array in inputs.items():
        for dtype in targets.values():
            middle = array.astype(np.int16) if dtype in (ml_dtypes.int4, ml_dtypes.uint2) else array.astype(np.float32)
            same(next(results), middle.astype(dtype), f"{name} to {dtype.__name__}")


def _quantised(kinds: dict[int, Any]) -> tuple[list[Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Models of quantisation there and back, with one scale, one for each place of an axis, and blocks."""
    rng = np.random.default_rng(7)
    scales = {"one": np.array(0.37, np.float32), "axis": rng.uniform(0.2, 1, 7).astype(np.float32),
              "block": rng.uniform(0.2, 1, (5, 3, 4)).astype(np.float32)}
    said = {"one": {}, "axis": {"axis": -2}, "block": {"axis": 1, "block_size": 3}}
    nodes, constants = [], dict(scales)
    for kind, dtype in kinds.items():
        for form, attributes in said.items():
            name, zero = f"{form}{kind}", f"zero{form}{kind}"
            value = 1 if dtype in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, np.uint8) else 0
            constants[zero] = np.full(scales[form].shape, value).astype(dtype)
            nodes += [
                helper.make_node("QuantizeLinear", ["x", form, zero], [name], **attributes),
                helper.make_node("DequantizeLinear", [name, form, zero], [f"{name}back"], **attributes),
            ]
    return nodes, {"x": (rng.standard_normal((5, 7, 4)) * 2).astype(np.float32)}, constants


@pytest.mark.parametrize("given", [False, True], ids=["constants", "inputs"])
def test_quantisation_of_every_granularity(given: bool) -> None:
    kinds = {T.INT4: ml_dtypes.int4, T.UINT4: ml_dtypes.uint4, T.INT2: ml_dtypes.int2, T.UINT8: np.uint8,
             T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, T.FLOAT4E2M1: ml_dtypes.float4_e2m1fn}
    if given:
        kinds = {kind: kinds[kind] for kind in (T.UINT4, T.FLOAT8E4M3FN)}
    nodes, inputs, constants = _quantised(kinds)
    if given:
        inputs, constants = inputs | constants, {}
    types = {name: kind for kind in kinds for form in ("one", "axis", "block") for name in (f"{form}{kind}",)}
    outputs = {name: types.get(name, T.FLOAT) for node in nodes for name in node.output}
    dims = {"x": ["n", "m", 4]} if given else {}
    proto = model(nodes, inputs, outputs, constants=constants, dims=dims)
    expected = ReferenceEvaluator(proto).run(None, inputs)
    for (name, kind), result, wanted in zip(outputs.items(), load(proto)(*inputs.values()), expected, strict=True):
        if kind == T.FLOAT:
            np.testing.assert_allclose(result, wanted, rtol=1e-6, err_msg=name)
        else:
            same(result, wanted, name)


def test_movement_comparison_and_bits() -> None:
    x = np.array([[1, -2, 3], [-4, 5, 0]], np.float32).astype(ml_dtypes.float8_e4m3fn)
    n = np.array([[1, -2, 3], [-8, 7, 0]], np.int8).astype(ml_dtypes.int4)
    start, end, shape = (np.array(value, np.int64) for value in ([1], [3], [3, 2]))
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"]),
        helper.make_node("Concat", ["turned", "turned"], ["joined"], axis=1),
        helper.make_node("Slice", ["joined", "start", "end"], ["part"]),
        helper.make_node("Reshape", ["n", "shape"], ["shaped"]),
        helper.make_node("Pad", ["n", "pads"], ["padded"]),
        helper.make_node("BitCast", ["n"], ["bits"], to=T.UINT4),
        helper.make_node("BitCast", ["x"], ["byte"], to=T.INT8),
        helper.make_node("IsNaN", ["x"], ["undefined"]),
        helper.make_node("Equal", ["n", "n"], ["equal"]),
        helper.make_node("Constant", [], ["constant"],
                         value=onnx.numpy_helper.from_array(np.array([-3, 2], ml_dtypes.int2))),
        helper.make_node("Identity", ["constant"], ["kept"]),
    ]
    outputs = {"part": T.FLOAT8E4M3FN, "shaped": T.INT4, "padded": T.INT4, "bits": T.UINT4, "byte": T.INT8,
               "undefined": T.BOOL, "equal": T.BOOL, "kept": T.INT2}
    constants = {"start": start, "end": end, "shape": shape, "pads": np.array([0, 1, 1, 0], np.int64)}
    part, shaped, padded, bits, byte, undefined, equal, kept = load(
        model(nodes, {"x": x, "n": n}, outputs, constants=constants)
    )(x, n)
    same(part, np.concatenate([x.T, x.T], 1)[1:3])
    same(shaped, n.reshape(3, 2))
    same(padded, np.pad(n.astype(np.int8), ((0, 1), (1, 0))).astype(ml_dtypes.int4))
    same(bits, n.view(ml_dtypes.uint4))
    same(byte, x.view(np.int8))
    assert not undefined.any() and equal.all()
    same(kept, np.array([-3, 2], ml_dtypes.int2))


def test_branches_carry_short_types() -> None:
    x, condition = np.array([3, -4], ml_dtypes.int4), np.array(True)

    def branch(op: str, **attributes: Any) -> onnx.GraphProto:
        nodes = [helper.make_node("Cast", ["x"], ["wide"], to=T.INT8), helper.make_node(op, ["wide"], ["other"]),
                 helper.make_node("Cast", ["other"], ["result"], to=T.INT4)]
        return helper.make_graph(nodes, op, [], [helper.make_tensor_value_info("result", T.INT4, [2])])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Abs"))
    session = load(model([node], {"c": condition, "x": x}, {"y": T.INT4}))
    same(session(condition, x), np.array([-3, 4], ml_dtypes.int4))
    same(session(~condition, x), np.array([3, 4], ml_dtypes.int4))


@pytest.mark.parametrize(("op", "kind", "said"), [
    ("Relu", ml_dtypes.float8_e5m2, "node 'it': Relu of f8E5M2 is not supported.*expected a Cast to float"),
    ("Neg", ml_dtypes.int4, "node 'it': Neg of i4 is not supported"),
])
def test_arithmetic_is_refused(op: str, kind: Any, said: str) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    proto = model([helper.make_node(op, ["x"], ["y"], "it")], {"x": np.zeros(3, kind)}, {"y": number})
    with pytest.raises(CompileError, match=said):
        motet.compile(proto, cache=False)
