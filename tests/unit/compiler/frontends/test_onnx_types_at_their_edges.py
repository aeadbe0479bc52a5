"""ONNX operators × types × numbers at the edges of the types, against onnx's reference: equal to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, checker, helper, numpy_helper, shape_inference
from onnx.compose import add_prefix_graph
from onnx.reference import ReferenceEvaluator

import motet

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*UNSIGNED, "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = ("bool", *INTEGERS, *FLOATS)
NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}
CODES = {name: getattr(TensorProto, NAMES.get(name, name.upper())) for name in TYPES}
COUNT = 24


def dtype_of(kind: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)


def edges(kind: str) -> np.ndarray:
    """Numbers of a type."""
    if kind == "bool":
        return np.array([False, True, True] * 8)
    if kind in INTEGERS:
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        wanted = [0, 1, -1, 2, 3, 7, least, most, least + 1, most - 1, 100, 127, 128, 200, 255, 2**15 + 1, 2**24 + 1,
                  -(2**24) - 1, 2**31 - 1, 2**31 + 1, 2**53 + 1, -(2**53) - 1, 2**62, -5]
        return np.array([value if least <= value <= most else 5 for value in wanted], kind)
    info = ml_dtypes.finfo(dtype_of(kind))
    tiny, eps = float(info.smallest_normal), float(info.eps)
    wanted = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 7.0, 1e-3, float(info.max), float(info.min), tiny, -tiny,
              tiny / 4, eps, 1 + eps, 2.0**24 + 1, np.inf, -np.inf, np.nan, 200.0, -5.0, 1 / 3]  # fmt: skip
    with np.errstate(over="ignore"):
        return np.array(wanted).astype(dtype_of(kind))


@dataclass(frozen=True)
class Case:
    """Nodes that compute `z` from `x` and `y`, of 24 elements, `few`, the first 18 of `x`, in which no number is NaN or
    infinite, and constants: whole numbers in `whole`, numbers of the type in `own`."""

    nodes: str  # "z = Add(x, y); …", with attributes as in {axis: 0}
    whole: dict[str, Any]
    own: dict[str, Any]
    attributes: dict[str, Any]


def case(nodes: str, whole: dict[str, Any] | None = None, own: dict[str, Any] | None = None, **attributes: Any) -> Case:
    return Case(nodes, whole or {}, own or {}, attributes)


ROWS = {"rows": [4, 6]}
PICKED = {"i": [3, -1, 0, 17]}
ANY = {
    "concat": case("z = Concat(x, y)", axis=0),
    "where": case("e = Equal(x, y); z = Where(e, x, y)"),
    "gather": case("z = Gather(x, i)", PICKED),
    "gather elements": case("z = GatherElements(x, i)", PICKED),
    "gather nd": case("z = GatherND(x, i)", {"i": [[3], [-1], [0]]}),
    "scatter elements": case("z = ScatterElements(few, i, u)", PICKED, {"u": [0, 1, 1, 0]}),
    "scatter nd": case("z = ScatterND(few, i, u)", {"i": [[3], [-1], [0]]}, {"u": [0, 1, 1]}),
    **{f"pad {mode}": case("z = Pad(x, p)", {"p": [2, 3]}, mode=mode) for mode in
       ("constant", "reflect", "edge", "wrap")},
    "pad by 1": case("z = Pad(x, p, v)", {"p": [2, 3]}, {"v": 1}),
    "pad rows": case("r = Reshape(x, rows); z = Pad(r, p)", {"p": [1, 2, 1, 0], **ROWS}, mode="edge"),
    "slice": case("z = Slice(x, a, b, c, d)", {"a": [-1], "b": [-100], "c": [0], "d": [-3]}),
    "transpose": case("r = Reshape(x, rows); z = Transpose(r)", ROWS, perm=[1, 0]),
    "expand": case("z = Expand(x, s)", {"s": [3, COUNT]}),
    "tile": case("z = Tile(x, s)", {"s": [3]}),
    "trilu": case("r = Reshape(x, rows); z = Trilu(r)", ROWS, upper=1),
    "trilu below": case("r = Reshape(x, rows); z = Trilu(r)", ROWS, upper=0),
    "reverse": case("r = Reshape(x, rows); z = ReverseSequence(r, l)", {"l": [1, 6, 3, 2], **ROWS}, batch_axis=0,
                    time_axis=1),
    "depth to space": case("r = Reshape(x, s); z = DepthToSpace(r)", {"s": [1, 4, 2, 3]}, blocksize=2),
    "space to depth": case("r = Reshape(x, s); z = SpaceToDepth(r)", {"s": [1, 1, 4, 6]}, blocksize=2),
    "non-zero": case("z = NonZero(x)"),
    "equal": case("z = Equal(x, y)"),
    **{f"cast to {to}": case("z = Cast(x)", to=CODES[to]) for to in ("bool", *FLOATS)},
}
NUMBERS = {
    **{name.lower(): case(f"z = {name}(x, y)") for name in
       ("Add", "Sub", "Mul", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Max", "Min")},
    **{name.lower(): case(f"z = {name}(x)") for name in ("Abs", "Neg", "Sign", "Relu", "Shrink")},
    "max of three": case("z = Max(x, y, few2)", {}, {"few2": [1] * COUNT}),
    "clip": case("z = Clip(x, a, b)", {}, {"a": 1, "b": 100}),
    "square": case("z = Pow(x, p)", {}, {"p": 2}),
    "square by int64": case("z = Pow(x, p)", {"p": 2}),
    "einsum": case("z = Einsum(few, few)", equation="i,i->i"),
    **{f"scatter {how}": case("z = ScatterElements(few, i, u)", PICKED, {"u": [1, 2, 3, 100]}, reduction=how)
       for how in ("add", "mul", "max", "min")},
    **{f"scatter nd {how}": case("z = ScatterND(few, i, u)", {"i": [[3], [-1], [0]]}, {"u": [1, 2, 100]}, reduction=how)
       for how in ("add", "mul", "max", "min")},
    **{name: case(f"r = Reshape(few, s); z = {name}(r, a)", {"s": [3, 6], "a": [1]}) for name in
       ("ReduceMax", "ReduceMin")},
    **{name: case(f"r = Reshape(few, s); z = {name}(r, a)", {"s": [9, 2], "a": [1]}) for name in
       ("ReduceSum", "ReduceProd")},
    **{f"{name} {last}": case(f"r = Reshape(few, s); z = {name}(r)", {"s": [3, 6]}, axis=1, select_last_index=last)
       for name in ("ArgMax", "ArgMin") for last in (0, 1)},
    "cumulative": case("r = Reshape(few, s); z = CumSum(r, a)", {"s": [9, 2], "a": 1}),
    **{f"top {largest}": case("z, i = TopK(few, k)", {"k": [5]}, largest=largest) for largest in (0, 1)},
    "range": case("z = Range(a, b, c)", {}, {"a": 1, "b": 100, "c": 7}),
}  # fmt: skip
WHOLE = {
    **{name: case(f"z = {name}(x, y)") for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitwiseNot": case("z = BitwiseNot(x)"),
    "cumulative back": case("r = Reshape(few, s); z = CumSum(r, a)", {"s": [9, 2], "a": 1}, exclusive=1, reverse=1),
    "quotient": case("z = Div(x, d)", {}, {"d": [3, 1, 7] * 8}),
    "remainder": case("z = Mod(x, d)", {}, {"d": [3, 1, 7] * 8}),
    "remainder of C": case("z = Mod(x, d)", {}, {"d": [3, 1, 7] * 8}, fmod=1),
    **{f"shift {way}": case("z = BitShift(x, s)", {}, {"s": 3}, direction=way) for way in ("LEFT", "RIGHT")},
    **{f"cast to {to}": case("z = Cast(x)", to=CODES[to]) for to in INTEGERS},
}
REAL = {
    **{name: case(f"z = {name}(x)") for name in ("Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "IsNaN", "IsInf")},
    "Div": case("z = Div(x, y)"),
}
LOGICAL = {name: case(f"z = {name}(x, y)") for name in ("And", "Or", "Xor")} | {"Not": case("z = Not(x)")}


def cases(kind: str) -> dict[str, Case]:
    if kind == "bool":
        return ANY | LOGICAL
    found = ANY | NUMBERS | (WHOLE if kind in INTEGERS else REAL)
    return {name: one for name, one in found.items() if name != "shrink" or "64" not in kind}  # onnx's is in float64


def parts(text: str) -> Iterator[tuple[list[str], str, list[str]]]:
    """(results, operator, operands) of each node."""
    for each in text.split("; "):
        results, _, call = each.partition(" = ")
        operator, _, operands = call.rstrip(")").partition("(")
        yield results.split(", "), operator, operands.split(", ")


def model_of(kind: str, number: int, one: Case) -> Any:
    """A model of one case, or None if ONNX lacks the operator for the type."""
    attributes = [dict[str, Any]()] * (one.nodes.count("; ")) + [one.attributes]
    nodes = [
        helper.make_node(operator, operands, results, f"{operator}{number}", **more)
        for (results, operator, operands), more in zip(parts(one.nodes), attributes, strict=True)
    ]
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in one.whole.items()]
    constants += [
        helper.make_tensor(name, CODES[kind], np.shape(value), np.ravel(np.array(value).astype(dtype_of(kind))))
        for name, value in one.own.items()
    ]
    inputs = [helper.make_tensor_value_info(name, CODES[kind], [size]) for name, size in
              (("x", COUNT), ("y", COUNT), ("few", 18))]
    graph = helper.make_graph(nodes, "table", inputs, [helper.make_empty_tensor_value_info("z")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    try:
        model = shape_inference.infer_shapes(model, strict_mode=True)
        checker.check_model(model, full_check=True)
    except (shape_inference.InferenceError, checker.ValidationError):
        return None
    return model


def joined(models: dict[str, Any], kind: str) -> Any:
    """One model that computes what all compute, of the same inputs."""
    nodes, outputs, constants = [], [], []
    inputs = next(iter(models.values())).graph.input
    for number, model in enumerate(models.values()):
        graph = add_prefix_graph(model.graph, f"m{number}_", rename_inputs=False)
        nodes += graph.node
        outputs += graph.output
        constants += graph.initializer
    whole = helper.make_graph(nodes, f"edges_of_{kind}", inputs, outputs, constants)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", TYPES)
def test_operators(kind: str) -> None:
    models = {
        name: model for number, (name, one) in enumerate(cases(kind).items())
        if (model := model_of(kind, number, one)) is not None
    }
    assert len(models) >= 25
    x = edges(kind)
    few = np.where(np.isfinite(x.astype(np.float64)), x, x[2])[:18] if kind in FLOATS else x[:18]
    feeds = {"x": x, "y": np.roll(x, 7), "few": few}
    session = motet.load(motet.compile(joined(models, kind)))
    found = session(*feeds.values())
    wrong = []
    for (name, model), got in zip(models.items(), found, strict=True):
        with np.errstate(all="ignore"):
            expected = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
        got = np.asarray(got)
        if (got.dtype, got.shape) != (expected.dtype, expected.shape) or not _equal(got, expected, name in ANY):
            wrong.append(f"{name}: {got.tolist()}, expected {expected.tolist()}")
    assert wrong == []


def _equal(got: np.ndarray, expected: np.ndarray, moved: bool) -> bool:
    """Equality in which every NaN is equal, and the zeros differ if elements are only `moved`."""
    if got.dtype.kind in "biu":
        return bool((got == expected).all())
    a, b = got.astype(np.float64), expected.astype(np.float64)
    signs = np.signbit(a) == np.signbit(b) if moved else True
    return bool(((a == b) & signs | (np.isnan(a) & np.isnan(b))).all())
