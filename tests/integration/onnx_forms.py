"""Forms of ONNX operators: one node each, with inputs of odd shapes, and what is to come out.

The expected values are those of the ONNX package's own reference, run in float64 where the operator may be widened.
"""

# ruff: noqa: E501 - tables, one form a line

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tests.integration.closeness import misses

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
FLOATS = (F32, F16, BF16, F64)
INF, NAN = float("inf"), float("nan")
Arrays = Sequence[np.ndarray | None]


@dataclass
class Form:
    """A node `op` of `inputs` (None for one that is left out); those in `constants` are initializers.

    `wide` says that the reference may be run in float64; `expected` takes its place where the reference of the ONNX
    package departs from the specification. `relative` is the error that is allowed beside that of the result's type,
    of each element, or with `mixed` of the largest.
    """

    op: str
    inputs: Arrays
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    constants: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    version: int = 21
    wide: bool = True
    relative: float = 2e-6
    mixed: bool = False
    expected: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        parts = [self.op]
        parts += [f"{k}={v.tolist() if isinstance(v, np.ndarray) else v}" for k, v in self.attributes.items()]
        parts += ["none" if a is None else f"{a.dtype.name}{list(a.shape)}" for a in self.inputs]
        return " ".join(parts).replace(", ", ",")

    def model(self, wide: bool = False, results: Sequence[np.ndarray] = ()) -> onnx.ModelProto:
        """The node as a model; `wide` has its floats as float64 and no constants."""
        return _model([self._graph("", wide, results)], self.version)

    def _graph(self, prefix: str, wide: bool, results: Sequence[np.ndarray]) -> onnx.GraphProto:
        names = ["" if a is None else f"{prefix}x{i}" for i, a in enumerate(self.inputs)]
        outputs = [name and f"{prefix}{name}" for name in self.outputs]
        node = helper.make_node(self.op, names, outputs, name=f"{prefix}node", **self.attributes)
        given = [(i, n, a) for i, (n, a) in enumerate(zip(names, self.inputs, strict=True)) if a is not None]
        held = () if wide else self.constants
        return helper.make_graph(
            [node], "form", [_info(n, widened(a) if wide else a) for i, n, a in given if i not in held],
            [_info(n, results[i]) if i < len(results) else onnx.ValueInfoProto(name=n)
             for i, n in enumerate(name for name in outputs if name)],
            [onnx.numpy_helper.from_array(a, n) for i, n, a in given if i in held],
        )

    def reference(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The results as they are declared, and as they should be, in float64 where possible."""
        feeds = {f"x{i}": a for i, a in enumerate(self.inputs) if a is not None}
        with np.errstate(all="ignore"):
            if self.expected is not None:
                exact = self.expected(*self.inputs)
                exact = list(exact) if isinstance(exact, tuple) else [exact]
                return [np.asarray(e) for e in exact], [np.asarray(e) for e in exact]
            plain = [np.asarray(r) for r in self._evaluate(self.model(wide=False, results=()), feeds)]
            if not self.wide or not any(a.dtype in (F32, F16, BF16) for a in feeds.values()):
                return plain, plain
            exact = self._evaluate(self.model(wide=True), {n: widened(a) for n, a in feeds.items()})
        return plain, [np.asarray(e) for e in exact]

    def _evaluate(self, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[Any]:
        needed = {value.name for value in model.graph.input}
        return list(ReferenceEvaluator(model).run(None, {n: a for n, a in feeds.items() if n in needed}))

    def feeds(self) -> list[np.ndarray]:
        """What a call is given: the inputs that are no constants."""
        return [a for i, a in enumerate(self.inputs) if a is not None and i not in self.constants]


def together(forms: Sequence[Form], results: Sequence[Sequence[np.ndarray]]) -> onnx.ModelProto:
    """One model of several forms, all of one operator set, whose inputs and outputs follow one another."""
    graphs = [form._graph(f"{i}_", False, declared) for i, (form, declared) in enumerate(zip(forms, results, strict=True))]
    return _model(graphs, forms[0].version)


def _model(graphs: Sequence[onnx.GraphProto], version: int) -> onnx.ModelProto:
    whole = onnx.GraphProto(name="forms")
    for graph in graphs:
        whole.MergeFrom(graph)
    whole.name = "forms"
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", version)], ir_version=11)


def widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype in (F32, F16, BF16) else array


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


def faults(form: Form, found: Sequence[np.ndarray], declared: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> str:
    """What is wrong with the results of a form; empty when nothing is."""
    if len(found) != len(declared):
        return f"{len(found)} results, expected {len(declared)}"
    for number, (mine, kind, want) in enumerate(zip(found, declared, exact, strict=True)):
        if mine.dtype != kind.dtype or mine.shape != kind.shape:
            return f"result {number}: {mine.dtype}{mine.shape}, expected {kind.dtype}{kind.shape}"
        wrong = _wrong(form, mine, kind, want)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (f"result {number}: {int(wrong.sum())} of {wrong.size} wrong, the first at {place}: "
                    f"{mine[place]!r}, expected {want[place]!r}")
    return ""


def _wrong(form: Form, mine: np.ndarray, kind: np.ndarray, want: np.ndarray) -> np.ndarray:
    if mine.dtype.kind not in "fV" and mine.dtype != BF16:
        return mine != want.astype(mine.dtype)
    return misses(mine, want, form.relative, form.mixed)


# -- values ----------------------------------------------------------------------------------------


class Values:
    """Random arrays, the same in every run for a form of the same words."""

    def __init__(self, *words: object) -> None:
        self.generator = np.random.default_rng(zlib.crc32(repr(words).encode()))

    def floats(self, *shape: int, dtype: Any = F32, low: float = -3, high: float = 3) -> np.ndarray:
        return self.generator.uniform(low, high, shape).astype(dtype)

    def ints(self, *shape: int, dtype: Any = np.int32, low: int = -9, high: int = 9) -> np.ndarray:
        return self.generator.integers(low, high, shape, endpoint=True).astype(dtype)

    def bools(self, *shape: int) -> np.ndarray:
        return self.generator.integers(0, 2, shape).astype(bool)


# -- the tables ------------------------------------------------------------------------------------

_SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1e-6, -1e-6, 0.5, -0.5, 1.5, 2.5, -2.5, 20.0, -20.0, 90.0, -90.0, 1e-3, -1e-3]
_UNARY: dict[str, list[tuple[dict[str, Any], tuple[float, float], list[float]]]] = {
    "Abs": [({}, (-3, 3), _SPECIAL)], "Neg": [({}, (-3, 3), _SPECIAL)], "Sign": [({}, (-3, 3), _SPECIAL)],
    "Ceil": [({}, (-9, 9), _SPECIAL)], "Floor": [({}, (-9, 9), _SPECIAL)], "Round": [({}, (-9, 9), _SPECIAL)],
    "Acos": [({}, (-1, 1), [1.0, -1.0, 0.0, 0.999])], "Asin": [({}, (-1, 1), [1.0, -1.0, 0.0, -0.0, 1e-4])],
    "Atan": [({}, (-9, 9), _SPECIAL)], "Acosh": [({}, (1, 9), [1.0, 1.001, 50.0, 3e4])],
    "Asinh": [({}, (-9, 9), [0.0, -0.0, 1e-4, -1e-4, -200.0, 200.0, -3e4])],
    "Atanh": [({}, (-0.99, 0.99), [0.0, -0.0, 1e-4, -1e-4, 0.999])],
    "Cos": [({}, (-9, 9), [0.0, 50.0])], "Sin": [({}, (-9, 9), [0.0, -0.0, 1e-4, 50.0])],
    "Tan": [({}, (-1.5, 1.5), [0.0, -0.0, 1e-4])],
    "Cosh": [({}, (-9, 9), [0.0, 1e-4])], "Sinh": [({}, (-9, 9), [0.0, -0.0, 1e-4, -1e-4])],
    "Tanh": [({}, (-9, 9), _SPECIAL)], "Erf": [({}, (-4, 4), _SPECIAL)], "Exp": [({}, (-9, 9), _SPECIAL)],
    "Log": [({}, (0.01, 9), [0.0, 1.0, 1.001, 0.999, INF, NAN, -1.0])],
    "Sqrt": [({}, (0, 9), [0.0, -0.0, 1e-6, INF, NAN, -1.0])],
    "Reciprocal": [({}, (-3, 3), [0.0, -0.0, 1e-3, INF, -INF, NAN])],
    "Relu": [({}, (-3, 3), _SPECIAL)], "Sigmoid": [({}, (-9, 9), _SPECIAL)], "Softplus": [({}, (-9, 9), _SPECIAL)],
    "Softsign": [({}, (-9, 9), [v for v in _SPECIAL if abs(v) != INF])],
    "Elu": [({}, (-4, 4), _SPECIAL), ({"alpha": 0.37}, (-4, 4), _SPECIAL)],
    "Celu": [({}, (-4, 4), _SPECIAL), ({"alpha": 0.37}, (-4, 4), _SPECIAL), ({"alpha": 2.3}, (-4, 4), _SPECIAL)],
    "Selu": [({}, (-4, 4), _SPECIAL), ({"alpha": 1.3, "gamma": 0.9}, (-4, 4), _SPECIAL)],
    "Gelu": [({}, (-4, 4), [0.0, 10.0, -10.0]), ({"approximate": "tanh"}, (-4, 4), [0.0, 10.0, -10.0])],
    "HardSigmoid": [({}, (-4, 4), _SPECIAL), ({"alpha": 0.3, "beta": 0.4}, (-4, 4), _SPECIAL)],
    "HardSwish": [({}, (-4, 4), [0.0, 3.0, -3.0, 10.0, -10.0])], "Mish": [({}, (-4, 4), [0.0, 10.0, -10.0, 1e-3])],
    "LeakyRelu": [({}, (-4, 4), _SPECIAL), ({"alpha": 0.3}, (-4, 4), _SPECIAL), ({"alpha": -0.3}, (-4, 4), [])],
    "Shrink": [({}, (-4, 4), [0.5, -0.5]), ({"lambd": 1.5, "bias": 0.7}, (-4, 4), [1.5, -1.5])],
    "ThresholdedRelu": [({}, (-4, 4), [1.0]), ({"alpha": 0.3}, (-4, 4), [0.0])],
    "IsNaN": [({}, (-3, 3), _SPECIAL)],
    "IsInf": [({}, (-3, 3), _SPECIAL), ({"detect_positive": 0}, (-3, 3), _SPECIAL),
              ({"detect_negative": 0}, (-3, 3), _SPECIAL)],
    "Swish": [({}, (-9, 9), [0.0, 20.0, -20.0]), ({"alpha": 1.7}, (-9, 9), [0.0])],
}  # fmt: skip
# Sums that cancel near zero: errors are held against the largest result. Constants of these functions are of float32.
_CANCEL = frozenset({"Elu", "Celu", "Selu", "Gelu", "Softplus", "Mish", "HardSigmoid", "Asinh", "Acosh", "Atanh", "Swish",
                     "HardSwish"})
_OF_FLOAT32 = frozenset({"Gelu", "HardSwish"})


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x.astype(np.float64)]).astype(x.dtype)


def unary() -> Iterator[Form]:
    for op, variants in _UNARY.items():
        for attributes, (low, high), special in variants:
            for dtype in FLOATS:
                if (dtype == BF16 and op in ("IsInf", "Softsign")) or (dtype == F64 and op in _OF_FLOAT32):
                    continue
                values = Values(op, attributes, dtype)
                x = np.concatenate([values.floats(37, dtype=dtype, low=low, high=high), np.array(special, dtype)])
                version = 24 if op == "Swish" else 22
                yield Form(op, [x], attributes, version=version, relative=4e-6, mixed=op in _CANCEL,
                           expected=_erf if op == "Erf" else None)
    for op in ("Abs", "Neg", "Sign", "Relu"):
        for dtype in (np.int8, np.int16, np.int32, np.int64):
            yield Form(op, [Values(op, dtype).ints(13, dtype=dtype)], version=22)


def _mean_of_two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a.astype(np.float64) + b) / 2).astype(a.dtype)


def _trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)


def _mod(fmod: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda a, b: np.fmod(a, b) if fmod else np.mod(a, b)


def binary() -> Iterator[Form]:
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean"):
        for dtype in FLOATS:
            v = Values(op, dtype)
            a, b = v.floats(3, 1, 7, dtype=dtype), v.floats(5, 1, dtype=dtype, low=0.3)
            yield Form(op, [np.abs(a) if op == "Pow" else a, b], relative=4e-6,
                       expected=_mean_of_two if op == "Mean" else None)
    yield Form("Pow", [np.array([-2, -1.5, 0, 2, 3, INF, -INF], F32), np.array([3, 2, 0, -1, 0.5, 0, 3], F32)])
    yield Form("Pow", [Values(1).floats(5), np.array([2, 3, 0, 1, 4], np.int64)], wide=False, version=15)
    yield Form("Pow", [Values(1).ints(5), np.array([2, 3, 0, 1, 4], np.int32)], version=15)
    yield Form("Pow", [np.abs(Values(1).ints(5)), np.array([2, 3, 0, 1, 2], F32)], version=15)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        unsigned = np.dtype(dtype).kind == "u"
        v = Values("int", dtype)
        top = int(np.iinfo(dtype).max)
        a = v.ints(2, 11, dtype=dtype, low=0 if unsigned else -100, high=100)
        a[0, :2] = top, int(np.iinfo(dtype).min)
        b = v.ints(11, dtype=dtype, low=1, high=9)
        if not unsigned:
            b[::2] *= -1
            b[b == -1] = 3
        for op in ("Add", "Sub", "Mul", "Max", "Min"):
            yield Form(op, [a, b], version=14)
        yield Form("Div", [a, b], version=14, expected=_trunc_div)
        for fmod in (0, 1):
            yield Form("Mod", [a, b], {"fmod": fmod}, version=13, expected=_mod(bool(fmod)))
        for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            yield Form(op, [a, np.where(b > 0, b, a[0]).astype(dtype)], version=19 if op == "Equal" else 16)
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Form(op, [a, b], version=18)
        yield Form("BitwiseNot", [a], version=18)
        if unsigned:
            for direction in ("LEFT", "RIGHT"):
                yield Form("BitShift", [a, (b % 7).astype(dtype)], {"direction": direction}, version=11)
        yield Form("Abs", [a[1]], version=13)
        yield Form("Clip", [a, np.array(2, dtype), np.array(50, dtype)], version=13)
    for dtype in FLOATS:
        v = Values("mod", dtype)
        a, b = v.floats(23, dtype=dtype, low=-9, high=9), v.floats(23, dtype=dtype, low=0.7)
        b[::2] *= -1
        yield Form("Mod", [a, b], {"fmod": 1}, version=13, expected=lambda a, b: np.fmod(a, b))
        special = np.array([NAN, 1, NAN, INF, -INF, 0, -0.0], dtype)
        other = np.array([1, NAN, NAN, 1, 1, -0.0, 0], dtype)
        for op in ("Max", "Min"):
            yield Form(op, [special, other])
        for op in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            yield Form(op, [special, other], version=19 if op == "Equal" else 16)
        low, high = np.array(-1, dtype), np.array(2, dtype)
        x = np.concatenate([v.floats(9, dtype=dtype), special])
        yield Form("Clip", [x, low, high], version=13)
        yield Form("Clip", [x, None, high], version=13)
        yield Form("Clip", [x, low], version=13)
        yield Form("Clip", [x, high, low], version=13)  # the larger bound first: all become the maximum
        yield Form("PRelu", [v.floats(2, 3, 5, dtype=dtype), v.floats(3, 1, dtype=dtype)], version=16)
        yield Form("Where", [v.bools(3, 1, 5), v.floats(4, 1, dtype=dtype), v.floats(5, dtype=dtype)])
    for op in ("And", "Or", "Xor"):
        yield Form(op, [Values(op).bools(3, 5), Values(op, 2).bools(5)])
    yield Form("Not", [Values(1).bools(3, 5)])


def casts() -> Iterator[Form]:
    types = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
             "float16", "bfloat16", "float32", "float64"]
    for source in types:
        for target in types:
            a, b = np.dtype(getattr(ml_dtypes, source, source)), np.dtype(getattr(ml_dtypes, target, target))
            x = np.array([0, 1, 2, 100, 127, 0.5, 0.3, 1.5, 2.5, 99.9, 0.1, 3.7]).astype(a)
            floating = source.startswith(("f", "bf"))
            if floating and target == "bool":
                x = np.concatenate([x, np.array([NAN, INF, -0.3, -0.0], a)])
            if (floating or source[0] == "i") and not target.startswith(("u", "b")):
                x = np.concatenate([x, np.array([-1, -2, -1.5, -0.9, -100.4]).astype(a)])
            if floating and target in ("uint8", "uint16", "uint32", "uint64"):
                x = np.concatenate([x, np.array([200, 255]).astype(a)])
            if floating and target.startswith(("f", "bf")):
                x = np.concatenate([x, np.array([70000.0, -1e-7, INF, NAN, 1 / 3, 65519, 1 + 2**-8, 1 + 3 * 2**-8], F64).astype(a)])
            if not floating and source != "bool" and target[0] in "iu":
                info = np.iinfo(a)
                x = np.concatenate([x, np.array([info.max, info.min, info.max - 5], a)])
            if not floating and source in ("int32", "uint32", "int64", "uint64"):
                info = np.iinfo(a)
                x = np.concatenate([x, np.array([info.max // 3, info.max // 2 + 7, 16777217], a)])
            to = helper.np_dtype_to_tensor_dtype(b)
            yield Form("Cast", [x], {"to": to}, wide=False, expected=lambda x, b=b: x.astype(b), relative=0)
            if source in ("float32", "int64"):
                yield Form("CastLike", [x, np.zeros(2, b)], wide=False, expected=lambda x, y, b=b: x.astype(b),
                           relative=0)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        kind = np.dtype(getattr(ml_dtypes, name))
        x = np.array([0.0, 1, -1.3, 0.07, 3.3, 100, 1000, -1e6, INF, -INF, NAN, 0.001], F32)
        to = helper.np_dtype_to_tensor_dtype(kind)
        for saturate in (0, 1):
            yield Form("Cast", [x], {"to": to, "saturate": saturate}, wide=False, version=19)
        yield Form("Cast", [x[:6].astype(kind)], {"to": 1}, wide=False, version=19)


def reductions() -> Iterator[Form]:
    for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
               "ReduceProd", "ReduceSum", "ReduceSumSquare"):
        for dtype in FLOATS:
            for axes, keep, noop in (([1], 1, 0), ([0, -1], 0, 0), (None, 1, 0), (None, 0, 1), ([-2], 0, 0)):
                x = Values(op, dtype, axes).floats(3, 5, 7, dtype=dtype, low=0.2)
                operands: Arrays = [x] if axes is None else [x, np.array(axes, np.int64)]
                yield Form(op, operands, {"keepdims": keep, "noop_with_empty_axes": noop}, constants=(1,), version=18,
                           relative=4e-6)
        x = Values(op).floats(3, 5, low=-3)
        if op not in ("ReduceLogSum",):
            yield Form(op, [x, np.array([1], np.int64)], {"keepdims": 0}, constants=(1,), version=18, mixed=True)
        for dtype in (np.int32, np.int64):
            if op not in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"):
                x = Values(op, dtype).ints(3, 5, dtype=dtype)
                if op == "ReduceMean":
                    x = np.arange(15).reshape(3, 5).astype(dtype)
                yield Form(op, [x, np.array([1], np.int64)], constants=(1,), version=18, wide=False)
        yield Form(op, [np.zeros((3, 0, 2), F32), np.array([1], np.int64)], constants=(1,), version=18, wide=False)
    yield Form("ReduceLogSumExp", [np.array([[200, 201], [-300, -301], [100, -INF]], F32), np.array([1])],
               constants=(1,), version=18)
    yield Form("ReduceL2", [np.array([[3e15, 4e15], [3e-15, 4e-15]], F32), np.array([1])], constants=(1,), version=18)
    for op in ("ReduceMax", "ReduceMin"):
        for dtype in (np.int8, np.uint8, np.uint32, np.uint64, bool):
            x = Values(op, dtype).ints(3, 5, dtype=np.int64, low=0, high=1 if dtype is bool else 250 if np.dtype(dtype).kind == "u" else 90)
            yield Form(op, [x.astype(dtype), np.array([1])], constants=(1,), version=20)
        yield Form(op, [np.array([[1, NAN, 2], [INF, 1, 2], [-INF, -INF, -INF]], F32), np.array([1])], constants=(1,),
                   version=18)
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for axis in (0, 1, -1):
                for keep in (0, 1):
                    x = Values(op, axis).ints(3, 5, 4, low=0, high=2).astype(F32)
                    yield Form(op, [x], {"axis": axis, "keepdims": keep, "select_last_index": last}, version=13)
            for dtype in (np.int32, np.uint8, F16, np.int64, F64):
                x = Values(op, 1).ints(3, 5, low=100, high=103).astype(dtype)
                if dtype is np.uint8:
                    x = (x + 60).astype(dtype)
                yield Form(op, [x], {"axis": 1, "select_last_index": last}, version=13)
            for dtype in (F32, F16, F64):
                x = np.array([[1, NAN, 3, NAN], [NAN, 2, 1, NAN], [4, 5, 6, NAN]], dtype)
                yield Form(op, [x], {"axis": 1, "select_last_index": last}, version=13)
                yield Form(op, [x], {"axis": 0, "select_last_index": last}, version=13)
            yield Form(op, [np.full((2, 3), -INF if op == "ArgMax" else INF, F32)],
                       {"axis": 1, "select_last_index": last})
            yield Form(op, [np.full((2, 3), -2**31 if op == "ArgMax" else 2**31 - 1, np.int32)],
                       {"axis": 1, "select_last_index": last})
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for dtype in FLOATS:
            if op == "Hardmax" and dtype == BF16:
                continue
            for axis in (0, 1, -1):
                x = Values(op, dtype).floats(3, 5, 7, dtype=dtype, low=-8, high=8)
                cancels = op == "LogSoftmax" and dtype == F32
                yield Form(op, [x], {"axis": axis}, version=13, relative=4e-6, mixed=cancels)
        yield Form(op, [Values(op).floats(2, 3, 4)], {"axis": 1}, version=11, wide=False, relative=4e-6,
                   expected=_flattened(op))
        yield Form(op, [np.array([[1000, 1001, 999], [-1000, -1001, -1e30], [0, 0, 0]], F32)], version=13,
                   expected=_log_softmax if op == "LogSoftmax" else None)
        if op != "Hardmax":
            yield Form(op, [np.array([[0, -INF, 3], [-INF, -INF, 2]], F32)], version=13)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    """The reference of the ONNX package takes the logarithm of what is zero by then."""
    shifted = x.astype(np.float64) - x.max(-1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))).astype(x.dtype)


def _flattened(op: str) -> Callable[[np.ndarray], np.ndarray]:
    """Before operator set 13: over all axes from `axis` on together."""
    def calculate(x: np.ndarray) -> np.ndarray:
        rows = x.reshape(x.shape[0], -1).astype(np.float64)
        if op == "Hardmax":
            return np.eye(rows.shape[1], dtype=x.dtype)[rows.argmax(1)].reshape(x.shape)
        shifted = rows - rows.max(1, keepdims=True)
        result = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        return (np.log(result) if op == "LogSoftmax" else result).reshape(x.shape).astype(x.dtype)
    return calculate


def norms() -> Iterator[Form]:
    for dtype in (F32, F16):
        v = Values("norm", dtype)
        x = v.floats(2, 6, 5, 3, dtype=dtype)
        for size in (1, 2, 3, 4, 5, 7):
            yield Form("LRN", [x], {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.2}, relative=4e-6,
                       expected=_response(size, 0.3, 0.6, 1.2))
        yield Form("LRN", [x], {"size": 3}, relative=4e-6, expected=_response(3, 1e-4, 0.75, 1.0))
        s, b = v.floats(6, dtype=dtype), v.floats(6, dtype=dtype)
        m, q = v.floats(6, dtype=dtype), v.floats(6, dtype=dtype, low=0.1)
        for epsilon in (1e-5, 0.1):
            e = {"epsilon": epsilon}
            yield Form("InstanceNormalization", [x, s, b], e, version=21, relative=4e-6, mixed=True)
            yield Form("InstanceNormalization", [x[:, :, :, 0], s, b], e, version=21, relative=4e-6, mixed=True)
            yield Form("BatchNormalization", [x, s, b, m, q], e, version=15, relative=4e-6, mixed=True)
            yield Form("BatchNormalization", [x[:, :, 0, 0], s, b, m, q], e, version=15, relative=4e-6, mixed=True)
            yield Form("BatchNormalization", [x, s, b, m, q], e, version=9, relative=4e-6, mixed=True,
                       expected=_inference(epsilon))
            for groups in (1, 2, 3, 6):
                yield Form("GroupNormalization", [x, s, b], {**e, "num_groups": groups}, version=21, relative=4e-6,
                           mixed=True, expected=_grouped(groups, epsilon))
            for axis in (-1, 1, 2, -2, 0):
                sh = x.shape[axis:]
                yield Form("LayerNormalization", [x, v.floats(*sh, dtype=dtype), v.floats(*sh, dtype=dtype)],
                           {**e, "axis": axis}, version=17, relative=4e-6, mixed=True)
                yield Form("RMSNormalization", [x, v.floats(*sh, dtype=dtype)], {**e, "axis": axis}, version=23,
                           relative=4e-6, mixed=True)
        yield Form("LayerNormalization", [x, v.floats(3, dtype=dtype)], {"epsilon": 1e-5}, version=17, relative=4e-6,
                   mixed=True)
        yield Form("LayerNormalization", [x, v.floats(3, dtype=dtype), v.floats(3, dtype=dtype)], {},
                   outputs=("y", "mean", "inverse"), version=17, relative=4e-6, mixed=True)
        for axes in ([0, 2, 3], [1], [2, 3]):
            yield Form("MeanVarianceNormalization", [x], {"axes": axes}, version=13, relative=4e-6, mixed=True)
        for p in (1, 2):
            for axis in (-1, 1, 0):
                yield Form("LpNormalization", [x], {"axis": axis, "p": p}, version=13 if dtype == F32 else 22,
                           relative=4e-6, expected=_unit(axis, p))
    near = (1000 + Values("near").floats(2, 4, 31, low=-0.5, high=0.5)).astype(F32)
    ones, zeros = np.ones(31, F32), np.zeros(31, F32)
    for epsilon in (1e-5, 1e-12):
        yield Form("LayerNormalization", [near, ones, zeros], {"epsilon": epsilon}, version=17, relative=5e-4, mixed=True)
    yield Form("InstanceNormalization", [near, np.ones(4, F32), np.zeros(4, F32)], relative=5e-4, mixed=True)
    for groups in (1, 2, 4):
        one, none = np.ones(groups, F32), np.zeros(groups, F32)
        yield Form("GroupNormalization", [near, one, none], {"num_groups": groups}, version=18, relative=5e-4, mixed=True,
                   expected=_grouped(groups, 1e-5))
        yield Form("GroupNormalization", [near, np.ones(4, F32), np.zeros(4, F32)], {"num_groups": groups}, version=21,
                   relative=5e-4, mixed=True, expected=_grouped(groups, 1e-5))
    yield Form("MeanVarianceNormalization", [near], {"axes": [0, 2]}, version=13, relative=5e-4, mixed=True,
               expected=lambda x: ((x - x.mean((0, 2), F64, keepdims=True)) / x.std((0, 2), F64, keepdims=True)).astype(F32))
    yield Form("LayerNormalization", [np.full((2, 5), 3.0, F32), ones[:5], ones[:5]], {"epsilon": 1e-5}, version=17)


def _response(size: int, alpha: float, beta: float, bias: float) -> Callable[[np.ndarray], np.ndarray]:
    """LRN: the reference of the ONNX package looks at as many channels as there are images."""
    def calculate(x: np.ndarray) -> np.ndarray:
        wide, total = x.astype(np.float64), np.zeros(x.shape)
        for c in range(x.shape[1]):
            low, high = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
            total[:, c] = (wide[:, low:high] ** 2).sum(1)
        return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)
    return calculate


def _grouped(groups: int, epsilon: float) -> Callable[..., np.ndarray]:
    def calculate(x: np.ndarray, s: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = x.astype(np.float64).reshape(x.shape[0], groups, -1)
        unit = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + epsilon)
        shape = (1, -1, *[1] * (x.ndim - 2))
        s, b = (np.repeat(a, x.shape[1] // a.size) for a in (s, b))  # of groups, before operator set 21
        return (unit.reshape(x.shape) * s.astype(np.float64).reshape(shape) + b.reshape(shape)).astype(x.dtype)
    return calculate


def _inference(epsilon: float) -> Callable[..., np.ndarray]:
    def calculate(x: np.ndarray, *of_channels: np.ndarray) -> np.ndarray:
        s, b, m, q = (a.astype(np.float64).reshape(1, -1, *[1] * (x.ndim - 2)) for a in of_channels)
        return (s * (x - m) / np.sqrt(q + epsilon) + b).astype(x.dtype)
    return calculate


def _unit(axis: int, p: int) -> Callable[[np.ndarray], np.ndarray]:
    def calculate(x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        return (wide / np.linalg.norm(wide, p, axis, keepdims=True)).astype(x.dtype)
    return calculate


def pools() -> Iterator[Form]:
    grids: list[dict[str, Any]] = [
        {"kernel_shape": [3, 2]}, {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 1, 0]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 0, 0, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [3, 4], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"},
        {"kernel_shape": [2, 3], "dilations": [2, 2]},
        {"kernel_shape": [2, 3], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 2, 1, 2]},
        {"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    ]  # fmt: skip
    for grid in grids:
        for dtype in (F32, F16):
            x = Values("pool", grid, dtype).floats(2, 3, 9, 8, dtype=dtype)
            yield Form("MaxPool", [x], grid, version=12, expected=_max_pool(grid))
            for include in (0, 1):
                yield Form("AveragePool", [x], {**grid, "count_include_pad": include}, version=19, relative=4e-6,
                           mixed=True, expected=_average_pool(grid, include))
            yield Form("LpPool", [x], {**grid, "p": 2}, version=18, relative=4e-6, mixed=True,
                       expected=_average_pool(grid, 0, 2))
    x = Values("pool").floats(2, 3, 9, 8)
    yield Form("MaxPool", [x - 50], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, version=12)
    yield Form("MaxPool", [x], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
               outputs=("y", "indices"), version=12)
    yield Form("MaxPool", [Values(1).ints(1, 2, 9, 8, dtype=np.int8, low=-100, high=100)], {"kernel_shape": [3, 3]},
               version=12)
    yield Form("MaxPool", [Values(1).ints(1, 2, 9, 8, dtype=np.uint8, low=0, high=255)],
               {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, version=12)
    yield Form("LpPool", [x], {"kernel_shape": [3, 3], "p": 1}, version=18, relative=4e-6, mixed=True)
    yield Form("LpPool", [np.abs(x)], {"kernel_shape": [3, 3], "p": 3}, version=18, relative=4e-6, mixed=True)
    for rank in (1, 3):
        y = Values("pool", rank).floats(2, 3, *(7, 6, 5)[:rank])
        k = {"kernel_shape": [3, 2, 2][:rank], "strides": [2, 1, 2][:rank]}
        padded = {**k, "pads": [1, 0, 1][:rank] + [1, 1, 0][:rank]}
        for grid in (k, padded, {**padded, "ceil_mode": 1}):
            yield Form("MaxPool", [y], grid, version=12)
            for include in (0, 1):
                yield Form("AveragePool", [y], {**grid, "count_include_pad": include}, version=19, relative=4e-6,
                           mixed=True, expected=_average_pool(grid, include))
    for y in (x, x[:, :, 0], x.reshape(2, 3, 3, 3, 8)):
        yield Form("GlobalAveragePool", [y], relative=4e-6, mixed=True)
        yield Form("GlobalMaxPool", [y], expected=lambda y: y.max(tuple(range(2, y.ndim)), keepdims=True))


def _max_pool(grid: dict[str, Any]) -> Callable[[np.ndarray], np.ndarray]:
    """MaxPool over the windows of AveragePool: the reference of the ONNX package has too few of them with auto_pad."""
    return _average_pool(grid, 0, INF)


def _average_pool(grid: dict[str, Any], include: int, power: float = 0) -> Callable[[np.ndarray], np.ndarray]:
    """AveragePool, or with a `power` LpPool, or of infinity MaxPool, as the specification words it: windows that begin in the padded input;
    what lies beyond the padding (ceil_mode) never counts."""
    def calculate(x: np.ndarray) -> np.ndarray:
        kernel = grid["kernel_shape"]
        rank = len(kernel)
        strides, dilations = grid.get("strides", [1] * rank), grid.get("dilations", [1] * rank)
        pads = list(grid.get("pads", [0] * 2 * rank))
        sizes = x.shape[2:]
        auto = grid.get("auto_pad", "NOTSET")
        outs: list[int] = []
        for i in range(rank):
            reach = (kernel[i] - 1) * dilations[i] + 1
            if auto.startswith("SAME"):
                out = -(-sizes[i] // strides[i])
                total = max(0, (out - 1) * strides[i] + reach - sizes[i])
                small, large = total // 2, total - total // 2
                pads[i], pads[i + rank] = (small, large) if auto == "SAME_UPPER" else (large, small)
            else:
                free = sizes[i] + pads[i] + pads[i + rank] - reach
                out = (-(-free // strides[i]) if grid.get("ceil_mode") else free // strides[i]) + 1
                if grid.get("ceil_mode") and (out - 1) * strides[i] >= sizes[i] + pads[i]:
                    out -= 1
            outs.append(out)
        result = np.zeros((*x.shape[:2], *outs))
        for place in np.ndindex(*outs):
            total, count = np.full(x.shape[:2], -INF if power == INF else 0.0), 0
            for offset in np.ndindex(*kernel):
                at = [place[i] * strides[i] + offset[i] * dilations[i] - pads[i] for i in range(rank)]
                if all(0 <= at[i] < sizes[i] for i in range(rank)):
                    value = x[(slice(None), slice(None), *at)].astype(np.float64)
                    if power == INF:
                        total = np.maximum(total, value)
                    else:
                        total += np.abs(value) ** power if power else value
                    count += 1
                elif include and all(-pads[i] <= at[i] < sizes[i] + pads[i + rank] for i in range(rank)):
                    count += 1
            root = 1 / power if 0 < power < INF else 1
            result[(slice(None), slice(None), *place)] = total**root if power else total / count
        return result.astype(x.dtype)
    return calculate


def products() -> Iterator[Form]:
    grids: list[dict[str, Any]] = [
        {}, {"strides": [2, 1]}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 1, 2, 1], "strides": [2, 2]},
        {"dilations": [2, 1], "pads": [2, 1, 1, 0]}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "dilations": [2, 2]},
    ]  # fmt: skip
    for grid in grids:
        for dtype in (F32, F16, BF16):
            v = Values("conv", grid, dtype)
            x, w, b = v.floats(2, 4, 8, 7, dtype=dtype), v.floats(6, 4, 3, 2, dtype=dtype), v.floats(6, dtype=dtype)
            yield Form("Conv", [x, w, b], grid, version=22, relative=4e-6, mixed=True)
            if dtype == F32:
                yield Form("Conv", [x, w[:, :2], b], {**grid, "group": 2}, version=22, relative=4e-6, mixed=True)
                yield Form("Conv", [x, w[:4, :1]], {**grid, "group": 4}, constants=(1,), version=22, relative=4e-6, mixed=True)
                yield Form("Conv", [x[:, :, :, 0], w[:, :, :, 0], b],
                           {k: ([e[0], e[2]] if k == "pads" else e[:1] if k != "auto_pad" else e)
                            for k, e in grid.items()}, version=22, relative=4e-6, mixed=True)
    v = Values("conv3")
    x, w = v.floats(1, 2, 5, 6, 4), v.floats(3, 2, 2, 3, 2)
    yield Form("Conv", [x, w], {"strides": [2, 1, 1], "pads": [1, 0, 1, 0, 1, 1]}, version=22, relative=4e-6, mixed=True)
    yield Form("Conv", [x, w[:, :1][:2]], {"group": 2}, version=22, relative=4e-6, mixed=True)
    transposed: list[dict[str, Any]] = [
        {}, {"strides": [2, 2]}, {"strides": [2, 3], "pads": [1, 0, 0, 1]},
        {"strides": [3, 2], "output_padding": [1, 1]}, {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
        {"dilations": [2, 2]}, {"dilations": [2, 1], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [11, 9]}, {"strides": [2, 2], "output_shape": [10, 8]},
        {"strides": [2, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
    ]  # fmt: skip
    for grid in transposed:
        v = Values("transposed", grid)
        x, w, b = v.floats(2, 4, 5, 4), v.floats(4, 3, 3, 2), v.floats(3)
        yield Form("ConvTranspose", [x, w, b], grid, version=22, relative=4e-6, mixed=True)
        yield Form("ConvTranspose", [x, w, v.floats(6)], {**grid, "group": 2}, version=22, relative=4e-6, mixed=True,
                   expected=_grouped_transposed(grid))
    yield Form("ConvTranspose", [v.floats(2, 4, 5), v.floats(4, 3, 3)], {"strides": [2], "pads": [1, 0]}, version=22,
               relative=4e-6, mixed=True)
    for ta in (0, 1):
        for tb in (0, 1):
            for dtype in (F32, F16, F64):
                v = Values("gemm", ta, tb, dtype)
                a, b = v.floats(*((5, 3) if ta else (3, 5)), dtype=dtype), v.floats(*((7, 5) if tb else (5, 7)), dtype=dtype)
                attributes = {"transA": ta, "transB": tb, "alpha": 0.37, "beta": 1.7}
                for c in (None, v.floats(7, dtype=dtype), v.floats(3, 1, dtype=dtype), v.floats(dtype=dtype)):
                    yield Form("Gemm", [a, b] if c is None else [a, b, c], attributes, version=13, relative=4e-6, mixed=True)
    ints = Values("gemm")
    yield Form("Gemm", [ints.ints(3, 5), ints.ints(5, 7), ints.ints(7)], {"alpha": 2.0, "beta": 3.0}, version=13, wide=False)
    for a, b in (((3, 5), (5, 7)), ((2, 1, 3, 5), (4, 5, 7)), ((5,), (5, 7)), ((3, 5), (5,)), ((5,), (5,)),
                 ((2, 3, 5), (5,)), ((5,), (2, 5, 7)), ((1, 1), (1, 1))):
        for dtype in (F32, F16, BF16, F64, np.int32, np.int64, np.uint32):
            v = Values("matmul", a, b, dtype)
            if np.dtype(dtype).kind in "iu":
                yield Form("MatMul", [v.ints(*a, dtype=dtype, low=0), v.ints(*b, dtype=dtype, low=0)], version=13)
            else:
                yield Form("MatMul", [v.floats(*a, dtype=dtype), v.floats(*b, dtype=dtype)], version=13, relative=4e-6, mixed=True)
    for ta in (np.int8, np.uint8):
        for tb in (np.int8, np.uint8):
            v = Values("integer", ta, tb)
            a = v.ints(3, 5, dtype=ta, low=-128 if ta is np.int8 else 0, high=127 if ta is np.int8 else 255)
            b = v.ints(5, 7, dtype=tb, low=-128 if tb is np.int8 else 0, high=127 if tb is np.int8 else 255)
            yield Form("MatMulInteger", [a, b])
            yield Form("MatMulInteger", [a, b, np.array(3, ta), np.array(100, tb)])
            yield Form("MatMulInteger", [a, b, np.array(200 if ta is np.uint8 else -7, ta)])
            yield Form("MatMulInteger", [np.stack([a, a + 1]), b, np.array(3, ta), np.array(100, tb)])
            rest = np.array(0.2, F32), np.array(5, tb), np.array(3.3, F32), np.array(9, ta)
            for left in (a, np.stack([a, a // 2])):
                yield Form("QLinearMatMul", [left, np.array(0.1, F32), np.array(3, ta), b, *rest], wide=False,
                           version=10 if left is a else 21, expected=_qlinear_matmul)
    u = Values("convinteger").ints(1, 2, 5, 6, dtype=np.uint8, low=0, high=255)
    for tw in (np.int8, np.uint8):
        w = Values("convinteger", tw).ints(3, 2, 3, 3, dtype=tw, low=0 if tw is np.uint8 else -128, high=127)
        yield Form("ConvInteger", [u, w, np.array(200, np.uint8), np.array(5, tw)], {"pads": [1, 1, 1, 1]},
                   expected=_conv_integer)
    yield Form("QLinearConv", [u, np.array(0.1, F32), np.array(130, np.uint8), Values(4).ints(3, 2, 3, 3, dtype=np.int8),
                               np.array(0.05, F32), np.array(0, np.int8), np.array(0.3, F32), np.array(120, np.uint8)],
               {"pads": [1, 1, 1, 1]}, expected=_qlinear_conv)
    for equation, shapes in (
        ("ij,jk->ik", ((3, 5), (5, 7))), ("bij,bjk->bik", ((2, 3, 5), (2, 5, 7))), ("i,j->ij", ((3,), (5,))),
        ("ii->i", ((4, 4),)), ("ii", ((4, 4),)), ("ij->ji", ((3, 5),)), ("...ij,...jk->...ik", ((2, 3, 5), (2, 5, 7))),
        ("ij,ij->", ((3, 5), (3, 5))), ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 7, 5))), ("ijk->j", ((3, 4, 5),)),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))), ("ij,jk", ((2, 3), (3, 4))), ("bi,bj->bij", ((2, 3), (2, 4))),
        ("...i->...", ((2, 3, 4),)), ("aij,ajk->aik", ((1, 2, 3), (4, 3, 2))),
    ):  # fmt: skip
        v = Values(equation)
        yield Form("Einsum", [v.floats(*s) for s in shapes], {"equation": equation}, version=12, relative=4e-6, mixed=True)


def _grouped_transposed(grid: dict[str, Any]) -> Callable[..., np.ndarray]:
    def calculate(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        halves = []
        for group in range(2):
            part = Form("ConvTranspose", [x[:, 2 * group : 2 * group + 2], w[2 * group : 2 * group + 2],
                                          b[3 * group : 3 * group + 3]], grid, version=22)
            halves.append(part.reference()[1][0])
        return np.concatenate(halves, 1).astype(x.dtype)
    return calculate


def _qlinear_matmul(a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any) -> np.ndarray:
    product = (a.astype(np.int64) - int(za)) @ (b.astype(np.int64) - int(zb))
    info = np.iinfo(zy.dtype)
    return np.clip(np.rint(product * (float(sa) * float(sb) / float(sy))) + int(zy), info.min, info.max).astype(zy.dtype)


def _correlate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def _conv_integer(x: np.ndarray, w: np.ndarray, zx: np.ndarray, zw: np.ndarray) -> np.ndarray:
    return _correlate(x.astype(np.int64) - int(zx), w.astype(np.int64) - int(zw)).astype(np.int32)


def _qlinear_conv(x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any) -> np.ndarray:
    total = _correlate(x.astype(np.int64) - int(zx), w.astype(np.int64) - int(zw))
    return np.clip(np.rint(total * (float(sx) * float(sw) / float(sy))) + int(zy), 0, 255).astype(np.uint8)
