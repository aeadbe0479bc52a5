"""Operators of ONNX whose every extent only a call knows: right extents against ONNX's reference, wrong ones refused.

The operators of a half are nodes of one model, each with inputs of its own, so that one compilation serves half the
table.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A node of operator `op`; `right` are shapes of its inputs that fit, `wrong` some that do not, with the numbers
    that the error must name. `constants` follow the inputs. Inputs are f32, or as `dtypes` says, their extents unknown
    but those that are `known`."""

    op: str
    right: Sequence[Sequence[Shape]]
    wrong: Sequence[tuple[Sequence[Shape], str]] = ()
    constants: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dtypes: Sequence[type] = ()
    outputs: int = 1
    known: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])  # by input and axis

    def dtype(self, number: int) -> type:
        return self.dtypes[number] if number < len(self.dtypes) else np.float32


MEETING = [
    [(2, 3), (2, 3)], [(1, 3), (2, 3)], [(2, 1), (1, 7)], [(17, 31), (17, 1)], [(1, 1), (65, 33)], [(0, 3), (1, 3)],
    [(1, 0), (5, 1)], [(0, 0), (0, 0)], [(1, 1), (1, 1)], [(128, 127), (128, 127)],
]
APART = [
    ([(2, 3), (3, 3)], "axis 0 .*: 2 and 3"), ([(2, 3), (2, 4)], "axis 1 .*: 3 and 4"), ([(0, 3), (2, 3)], ": 0 and 2"),
    ([(65, 33), (64, 33)], ": 65 and 64"),
]  # fmt: skip
CASES = {
    **{op.lower(): Case(op, MEETING, APART) for op in ("Add", "Sub", "Div", "Max", "Less")},
    "product": Case("Mul", [[(3, 4), (4,)], [(3, 4), (1,)], [(3, 1), (5,)], [(0, 4), (1,)]],
                    [([(3, 4), (3,)], ": 4 and 3")]),
    "remainder": Case("Mod", MEETING, APART, dtypes=(np.int32, np.int32)),
    "both": Case("And", MEETING, APART, dtypes=(np.bool_, np.bool_)),
    "space to depth": Case("SpaceToDepth", [[(1, 1, 4, 6)], [(2, 3, 2, 2)], [(0, 1, 2, 2)], [(1, 5, 0, 2)]],
                           attributes={"blocksize": 2}),
    "sum": Case("Sum", [[(2, 3), (1, 3), (2, 1)], [(1, 1), (1, 5), (7, 1)], [(4, 4), (4, 4), (4, 4)]],
                [([(2, 3), (2, 3), (3, 3)], ": 2 and 3"), ([(1, 3), (2, 3), (3, 3)], ": 2 and 3")]),
    **{f"depth to space, {mode}": Case("DepthToSpace", [[(1, 9, 4, 6)], [(2, 18, 1, 1)], [(1, 9, 0, 2)]],
                                       attributes={"blocksize": 3, "mode": mode}) for mode in ("DCR", "CRD")},
    "choice": Case("Where", [[(2, 3), (2, 3), (2, 3)], [(1, 3), (2, 1), (2, 3)], [(1, 1), (1, 5), (4, 1)],
                             [(7, 1), (1, 1), (1, 1)]],
                   [([(2, 3), (3, 3), (2, 3)], ": 2 and 3"), ([(4, 3), (2, 3), (2, 3)], ": 4 and 2")],
                   dtypes=(np.bool_,)),
    "slope": Case("PRelu", [[(2, 3), (2, 3)], [(2, 3), (1, 3)], [(5, 7), (1, 1)]],
                  [([(2, 3), (3, 3)], ": 3 and 2"), ([(1, 3), (2, 3)], ": 2 and 1")]),
    "matmul": Case("MatMul", [[(2, 3, 4), (2, 4, 5)], [(1, 3, 4), (7, 4, 5)], [(7, 3, 4), (1, 4, 5)],
                              [(2, 1, 1), (2, 1, 1)], [(0, 3, 4), (1, 4, 5)], [(2, 17, 33), (1, 33, 15)],
                              [(2, 3, 0), (2, 0, 5)]],
                   [([(2, 3, 4), (3, 4, 5)], ": 2 and 3"), ([(2, 3, 4), (2, 5, 5)], ": 4 and 5"),
                    ([(2, 3, 1), (2, 4, 5)], ": 1 and 4")]),
    "matmul of one matrix and a batch": Case(
        "MatMul", [[(1, 3, 4), (2, 4, 5)], [(1, 3, 4), (0, 4, 5)], [(1, 3, 4), (1, 4, 5)]],
        [([(1, 3, 4), (0, 5, 5)], ": 4 and 5")], known={(0, 0): 1}),
    "matmul of crossed batches": Case(
        "MatMul", [[(2, 1, 3, 4), (1, 3, 4, 5)], [(0, 1, 3, 4), (1, 2, 4, 5)], [(2, 1, 3, 4), (1, 0, 4, 5)],
                   [(0, 1, 3, 4), (1, 0, 4, 5)]], known={(0, 1): 1, (1, 0): 1}),
    "stacked": Case("MatMul", [[(2, 3, 4, 5), (3, 5, 6)], [(2, 1, 4, 5), (3, 5, 6)], [(2, 3, 4, 5), (1, 5, 6)]],
                    [([(2, 3, 4, 5), (2, 5, 6)], ": 3 and 2")]),
    "gemm": Case("Gemm", [[(2, 3), (3, 4), (2, 4)], [(2, 3), (3, 4), (1, 4)], [(2, 3), (3, 4), (1, 1)],
                          [(7, 3), (3, 5), (7, 1)]],
                 [([(2, 3), (3, 4), (3, 4)], ": 3 and 2"), ([(2, 3), (4, 4), (2, 4)], ": 3 and 4"),
                  ([(2, 3), (3, 4), (2, 3)], ": 3 and 4")]),
    "turned": Case("Gemm", [[(3, 2), (4, 3), (4,)], [(3, 2), (4, 3), (1,)]], [([(3, 2), (4, 3), (2,)], ": 2 and 4")],
                   attributes={"transA": 1, "transB": 1}),
    "concat": Case("Concat", [[(2, 3), (5, 3), (1, 3)], [(0, 3), (0, 3), (0, 3)], [(1, 0), (2, 0), (3, 0)]],
                   [([(2, 3), (2, 4), (2, 3)], "axis 1 of inputs 0 and 1 .*: 3 and 4"),
                    ([(2, 3), (2, 3), (2, 5)], "axis 1 of inputs 0 and 2 .*: 3 and 5")], attributes={"axis": 0}),
    "split": Case("Split", [[(5, 3)], [(5, 0)]],
                  [([(4, 3)], ": 4 and 5"), ([(6, 3)], ": 6 and 5"), ([(1, 3)], ": 1 and 5")],
                  constants=[np.array([2, 3])], attributes={"axis": 0}, outputs=2),
    "halves": Case("Split", [[(4, 3)], [(5, 3)], [(7, 1)]], attributes={"axis": 0, "num_outputs": 2}, outputs=2),
    "elements": Case("GatherElements", [[(5, 3), (2, 3)], [(5, 3), (7, 3)], [(1, 3), (0, 3)]],
                     [([(5, 3), (2, 4)], ": 4 and 3"), ([(5, 0), (2, 1)], ": 1 and 0")], attributes={"axis": 0},
                     dtypes=(np.float32, np.int64)),
    "scattered": Case("ScatterElements", [[(5, 3), (2, 3), (2, 3)], [(5, 3), (1, 2), (1, 2)], [(5, 3), (0, 3), (0, 3)]],
                      [([(5, 3), (2, 4), (2, 4)], ": 4 and 3"), ([(5, 3), (2, 3), (3, 3)], ": 2 and 3"),
                       ([(5, 3), (2, 3), (2, 2)], ": 3 and 2")], attributes={"axis": 0},
                      dtypes=(np.float32, np.int64, np.float32)),
    "nd": Case("ScatterND", [[(5, 3), (2, 1), (2, 3)], [(5, 3), (0, 1), (0, 3)]],
               [([(5, 3), (2, 1), (3, 3)], ": 2 and 3"), ([(5, 3), (2, 1), (2, 4)], ": 3 and 4")],
               dtypes=(np.float32, np.int64, np.float32), known={(1, 1): 1}),
    "conv": Case("Conv", [[(1, 4, 5, 7), (6, 4, 3, 3)], [(0, 4, 5, 7), (6, 4, 3, 3)], [(2, 4, 3, 3), (6, 4, 3, 3)]],
                 [([(1, 3, 5, 5), (6, 4, 3, 3)], ": 3 and 4"), ([(1, 4, 1, 5), (6, 4, 3, 3)], "negative: 0 and -1")],
                 attributes={"kernel_shape": [3, 3]}),
    "grouped": Case("Conv", [[(1, 4, 5, 7), (6, 2, 3, 3)], [(3, 4, 4, 4), (6, 2, 3, 3)]],
                    [([(1, 5, 5, 5), (6, 2, 3, 3)], ": 5 and 2"), ([(1, 6, 5, 5), (6, 2, 3, 3)], ": 3 and 2")],
                    attributes={"kernel_shape": [3, 3], "group": 2}),
    "pool": Case("MaxPool", [[(1, 2, 5, 7)], [(2, 1, 3, 3)]], [([(1, 2, 1, 7)], "negative: 0 and -1")],
                 attributes={"kernel_shape": [3, 3]}),
    "squeeze": Case("Squeeze", [[(3, 1)], [(0, 1)], [(1, 1)]], [([(3, 2)], ": 2 and 1"), ([(3, 0)], ": 0 and 1")],
                    constants=[np.array([1])]),
    "reshape": Case("Reshape", [[(3, 4)], [(2, 6)], [(1, 8)], [(5, 8)]],
                    [([(3, 3)], ": 9 and 4"), ([(1, 2)], ": 2 and 4")],
                    constants=[np.array([-1, 4])]),
    "known": Case("Reshape", [[(3, 8)], [(24, 1)], [(1, 24)]], [([(3, 7)], ": 21 and 24"), ([(0, 8)], ": 0 and 24")],
                  constants=[np.array([6, 4])]),
    "rows": Case("Reshape", [[(3, 8)], [(5, 8)], [(0, 8)]], [([(3, 7)], ": 7 and 8")], constants=[np.array([0, 2, 4])]),
    "expand": Case("Expand", [[(5, 3)], [(1, 3)], [(5, 1)], [(1, 1)]],
                   [([(2, 3)], ": 2 and 5"), ([(5, 4)], ": 4 and 3")],
                   constants=[np.array([5, 3])]),
    "expand to fewer axes": Case("Expand", [[(1, 3, 1)], [(4, 1, 5)], [(0, 3, 5)]], constants=[np.array([3, 5])]),
    **{f"{op} of other ranks": Case(op, [[(1, 3), (1, 3), (17, 4, 3)], [(1, 1), (1, 7), (17, 1, 7)]],
                                    known={(0, 0): 1, (1, 0): 1, (2, 0): 17}) for op in ("Min", "Max", "Sum")},
    "top": Case("TopK", [[(2, 5)], [(1, 5)], [(0, 5)]], constants=[np.array([3])], outputs=2, known={(0, 1): 5}),
    "normal": Case("LayerNormalization", [[(2, 5), (5,), (5,)], [(3, 1), (1,), (1,)], [(2, 5), (1,), (5,)]],
                   [([(2, 5), (4,), (5,)], ": 4 and 5"), ([(2, 5), (5,), (3,)], ": 3 and 5")]),
    "slice": Case("Slice", [[(5, 3)], [(2, 3)], [(1, 3)], [(0, 3)]],
                  constants=[np.array([1]), np.array([4]), np.array([0])]),
}  # fmt: skip
HALVES = [dict(list(CASES.items())[half::2]) for half in (0, 1)]  # the first one is for `make test`


def in_halves(names: Iterable[str]) -> list[Any]:
    """Parameters of tests."""
    return [name if name in HALVES[0] else pytest.param(name, marks=pytest.mark.slow) for name in names]


def nodes_of(name: str, case: Case, opset: int = 18) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """The node, its inputs, its outputs and its constants."""
    inputs = [
        onnx.helper.make_tensor_value_info(
            f"{name}.{number}", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype(number))),
            [case.known.get((number, axis)) for axis in range(len(shape))],
        )
        for number, shape in enumerate(case.right[0])
    ]
    constants = [onnx.numpy_helper.from_array(value, f"{name}.c{n}") for n, value in enumerate(case.constants)]
    outputs = [f"{name}.r{number}" for number in range(case.outputs)]
    named = [value.name for value in (*inputs, *constants)]
    return [onnx.helper.make_node(case.op, named, outputs, name, **case.attributes)], inputs, outputs, constants


def model_of(cases: Mapping[str, Case]) -> onnx.ModelProto:
    parts = [nodes_of(name, case) for name, case in cases.items()]
    nodes, inputs, outputs, constants = ([item for part in parts for item in part[group]] for group in range(4))
    graph = onnx.helper.make_graph(
        nodes, "g", inputs, [onnx.helper.make_empty_tensor_value_info(name) for name in outputs], constants
    )
    for value in graph.output:
        value.type.tensor_type.elem_type = 0
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def values(case: Case, shapes: Sequence[Shape], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    made: list[np.ndarray] = []
    for number, shape in enumerate(shapes):
        kind = case.dtype(number)
        if kind is np.int64:  # indices, in range of the first input's first axis and different from each other
            rows = np.arange(int(np.prod(shape))).reshape(shape) // max(1, int(np.prod(shape[1:])))
            made.append(rows % max(1, shapes[0][0]))
        elif kind is np.int32:
            made.append(random.integers(1, 9, shape).astype(np.int32))
        elif kind is np.bool_:
            made.append(random.random(shape) > 0.5)
        else:
            made.append(random.normal(size=shape).astype(np.float32))
    return made


@pytest.fixture(scope="module")
def session_of() -> Iterator[Callable[[int], Any]]:
    """The session of a half, compiled when it is first asked for."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda half: stack.enter_context(
            motet.load(motet.compile(model_of(HALVES[half]).SerializeToString()))
        ))  # fmt: skip


def call(session_of: Callable[[int], Any], name: str, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of node `name`; all others of its half are called with what fits them."""
    number = 0 if name in HALVES[0] else 1
    half, arguments = HALVES[number], list[np.ndarray]()
    for other, case in half.items():
        arguments += given if other == name else values(case, case.right[0])
    results = session_of(number)(*arguments)
    first = sum(case.outputs for case in list(half.values())[: list(half).index(name)])
    return list(results)[first : first + half[name].outputs]


@pytest.mark.every
@pytest.mark.parametrize("name", in_halves(CASES))
def test_right_extents_give_what_onnx_says(session_of: Callable[[int], Any], name: str) -> None:
    case = CASES[name]
    reference = ReferenceEvaluator(model_of({name: case}))
    for seed, shapes in enumerate(case.right):
        given = values(case, shapes, seed)
        expected = reference.run(None, {f"{name}.{number}": value for number, value in enumerate(given)})
        for result, wanted in zip(call(session_of, name, given), expected, strict=True):
            assert result.shape == wanted.shape, shapes
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5, err_msg=str(shapes))


@pytest.mark.parametrize("name", in_halves(name for name, case in CASES.items() if case.wrong))
def test_wrong_extents_are_refused_with_the_operator_and_both_numbers(
    session_of: Callable[[int], Any], name: str
) -> None:
    case = CASES[name]
    for shapes, numbers in case.wrong:
        with pytest.raises(CallError) as refused:
            call(session_of, name, values(case, shapes))
        assert re.search(rf'main: {case.op} "{name}[^"]*": .*{numbers}\b', str(refused.value)), refused.value
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "shape", "wrong"), [
    ("space to depth", (1, 1, 5, 4), "axis 2 .* is 5"), ("depth to space, DCR", (1, 8, 2, 2), "axis 1 .* is 8"),
])
def test_extents_that_no_block_divides_are_refused(
    session_of: Callable[[int], Any], name: str, shape: Shape, wrong: str
) -> None:
    with pytest.raises(CallError, match=f'"{name}/.*{wrong}'):
        call(session_of, name, [np.zeros(shape, np.float32)])


@pytest.mark.parametrize("placed", ["grow", "pick"])
def test_extents_are_compared_wherever_operators_are_placed(placed: str) -> None:
    """What only assertions of the lowering tell of, which are in no region of any device."""
    made = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Expand", ["a", "shape"], ["y"], "grow"),
         onnx.helper.make_node("Where", ["c", "p", "p"], ["z"], "pick")], "main",
        [made("a", onnx.TensorProto.FLOAT, [1, "n"]), made("c", onnx.TensorProto.BOOL, ["k", "k"]),
         made("p", onnx.TensorProto.FLOAT, [3, 4])],
        [made("y", onnx.TensorProto.FLOAT, None), made("z", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([5, 2], np.int64), "shape")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    devices = {"a": "host{cpu=x86-64-v3}", "b": "null,@a"}
    session = motet.load(motet.compile(model, devices=devices, place={placed: "b"}))
    p = np.arange(12, dtype=np.float32).reshape(3, 4)

    def call(n: int, k: int) -> tuple[np.ndarray, ...]:
        return session(np.ones((1, n), np.float32), np.ones((k, k), bool), p)

    for n in (1, 2):
        y, z = call(n, 1)
        np.testing.assert_array_equal(y, np.ones((5, 2)))
        np.testing.assert_array_equal(z, p)
    with pytest.raises(CallError, match=r'Expand "grow": .*: 33 and 2'):
        call(33, 1)
    with pytest.raises(CallError, match=r'Where "pick": .*(3 and 0|0 and 3|4 and 3|3 and 4|0 and 4)'):
        call(2, 0)
    with pytest.raises(CallError, match=r'Where "pick": '):
        call(2, 3)
