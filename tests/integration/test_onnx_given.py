"""Operators of ONNX whose axes, shapes and counts a call gives, and results that are as long as what is in data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError
from motet.runtime.session import Session

Arrays = Mapping[str, np.ndarray]

LARGEST = np.iinfo(np.int64).max
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9


def make_model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, Sequence[int | str]]], results: Sequence[str]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "given", [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def load(model: onnx.ModelProto) -> Session:
    return motet.load(motet.compile(model, devices="host{cpu=x86-64-v3}", cache=False), threads=1)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


I64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
NODES = [
    helper.make_node("Tile", ["x", "repeats"], ["tiled"], "tile"),
    helper.make_node("Reshape", ["x", "shape"], ["reshaped"], "reshape"),
    helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["sliced"], "slice"),
    helper.make_node("ReduceSum", ["x", "axes"], ["sum"], "sum", keepdims=0),
    helper.make_node("Range", ["zero", "limit", "step"], ["range"], "range"),
    helper.make_node("Compress", ["x", "marks"], ["compressed"], "compress", axis=1),
    helper.make_node("NonZero", ["compressed"], ["places"], "nonzero"),
]
INPUTS = {
    "x": (F32, ["n", 3, 4]), "repeats": (I64, [3]), "shape": (I64, [3]), "starts": (I64, [2]), "ends": (I64, [2]),
    "axes": (I64, [2]), "steps": (I64, [2]), "zero": (I64, []), "limit": (I64, []), "step": (I64, []),
    "marks": (BOOL, ["m"]),
}  # fmt: skip
RESULTS = ["tiled", "reshaped", "sliced", "sum", "range", "compressed", "places"]
RIGHT = {
    "x": X, "repeats": numbers(1, 2, 1), "shape": numbers(4, -1, 3), "starts": numbers(0, -1),
    "ends": numbers(LARGEST, -LARGEST), "axes": numbers(1, -1), "steps": numbers(2, -3), "zero": np.array(0),
    "limit": np.array(7), "step": np.array(3), "marks": np.array([True, False, True]),
}  # fmt: skip
OTHERS = [
    {"repeats": numbers(0, 1, 3), "shape": numbers(1, 24, 1), "axes": numbers(2, 0), "limit": np.array(-5)},
    {"x": X[:0], "shape": numbers(0, 0, 0), "marks": np.zeros(3, bool)},
    {"x": np.concatenate([X, X]), "shape": numbers(0, -1, 2), "step": np.array(-3), "limit": np.array(-8),
     "steps": numbers(1, LARGEST), "axes": numbers(-2, 0), "marks": np.array([False, True])},
]  # fmt: skip
WRONG = [
    ({"repeats": numbers(1, -1, 1)}, 'Tile "tile": a number of repeats is less than 0'),
    ({"repeats": numbers(1, 1 << 62, 1)}, 'Tile "tile": .* is 4611686018427387904; expected at most'),
    ({"shape": numbers(5, 5, 1)}, 'Reshape "reshape": .* 24 and 25'),
    ({"shape": numbers(-1, -1, 1)}, 'Reshape "reshape": more than one extent is -1'),
    ({"shape": numbers(-2, 3, 4)}, 'Reshape "reshape": an extent is less than -1'),
    ({"axes": numbers(1, 3)}, '"(slice|sum)": expected different axes, each at least -3 and at most 2'),
    ({"axes": numbers(1, -2)}, '"(slice|sum)": expected different axes'),
    ({"axes": numbers(1, 1 << 62)}, '"(slice|sum)": expected different axes'),
    ({"steps": numbers(0, 1)}, 'Slice "slice": a step is 0'),
    ({"step": np.array(0)}, 'Range "range": expected a step'),
    ({"marks": np.ones(4, bool)}, "index 3 is outside of an axis of extent 3"),
    ({"starts": numbers(1, 2, 3)}, 'argument 3 \\("starts"\\): shape 3 given, 2 expected'),
]


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return make_model(NODES, INPUTS, RESULTS)


@pytest.fixture(scope="module")
def session(model: onnx.ModelProto) -> Session:
    return load(model)


@pytest.mark.parametrize("given", [{}, *OTHERS], ids=["first", "others", "nothing", "longer"])
def test_axes_shapes_and_counts_of_a_call(model: onnx.ModelProto, session: Session, given: Arrays) -> None:
    arrays = RIGHT | given
    wanted = ReferenceEvaluator(model).run(None, dict(arrays))
    for name, found, expected in zip(RESULTS, session(*(arrays[name] for name in INPUTS)), wanted, strict=True):
        assert found.shape == np.shape(expected), name
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_a_call_may_not_give(session: Session, given: Arrays, said: str) -> None:
    arrays = RIGHT | given
    with pytest.raises(CallError, match=said) as error:
        session(*(arrays[name] for name in INPUTS))
    assert str(error.value).startswith("main: ") and "\n" not in str(error.value)


def test_callers_see_their_own_functions_and_inputs(session: Session) -> None:
    assert list(session) == ["main"]
    assert [spec.name for spec in session.signature.inputs] == list(INPUTS)


def test_numbers_of_a_program_are_extents() -> None:
    program = """
    func.func @main(%x: tensor<?xf32>, %n: i32) -> tensor<?xf32> {
      %i = arith.index_cast %n : i32 to index
      %c2 = arith.constant 2 : index
      %twice = arith.muli %i, %c2 : index
      %part = tensor.extract_slice %x[%i] [%twice] [1] : tensor<?xf32> to tensor<?xf32>
      %e = tensor.empty(%twice) : tensor<?xf32>
      %y = linalg.negf ins(%part : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      return %y : tensor<?xf32>
    }
    """
    x = np.arange(9, dtype=np.float32)
    session = motet.load(motet.compile(program, devices="host{cpu=x86-64-v3}", cache=False), threads=1)
    for n in (0, 1, 3):
        np.testing.assert_array_equal(session(x, np.array(n, np.int32)), -x[n : 3 * n])
    with pytest.raises(CallError, match=r"extract_slice: .* must be at most what there is: 12 and 9"):
        session(x, np.array(4, np.int32))
    with pytest.raises(CallError, match="extract_slice: an extent or a place is -1; expected at least 0"):
        session(x, np.array(-1, np.int32))


RESHAPES = [((0, -1), 0), ((0, 0, -1, 4), 0), ((-1,), 0), ((2, 0, 8), 0), ((1, -1, 8, 1), 1)]


@pytest.mark.parametrize(("asked", "allowzero"), RESHAPES)
def test_reshape_resolves_the_extents_0_and_minus_1_of_a_call(asked: Sequence[int], allowzero: int) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape", allowzero=allowzero)]
    model = make_model(nodes, {"x": (F32, ["a", "b", "c"]), "shape": (I64, [len(asked)])}, ["y"])
    arrays = {"x": np.arange(96, dtype=np.float32).reshape(2, 6, 8), "shape": numbers(*asked)}
    (wanted,) = ReferenceEvaluator(model).run(None, arrays)
    np.testing.assert_array_equal(load(model)(*arrays.values()), wanted)


def test_an_inferred_extent_meets_one_that_is_known() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"], "reshape"), helper.make_node("Add", ["r", "y"], ["z"])]
    model = make_model(nodes, {"x": (F32, ["a", "b"]), "shape": (I64, [3]), "y": (F32, ["c", 4, 8])}, ["z"])
    session = load(model)
    arrays = {"x": np.ones((2, 32), np.float32), "shape": numbers(2, 4, -1), "y": np.ones((2, 4, 8), np.float32)}
    (wanted,) = ReferenceEvaluator(model).run(None, arrays)
    np.testing.assert_array_equal(session(*arrays.values()), wanted)
    with pytest.raises(CallError, match="axis 2 of input"):
        session(arrays["x"], numbers(4, 4, -1), arrays["y"])


@pytest.mark.parametrize("sizes", [(9, 4), (1, 7), (3, 1), (1, 1)])
def test_pytorch_half_pixel_takes_the_first_element_for_one(sizes: Sequence[int]) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], "resize", mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )  # fmt: skip
    model = make_model([node], {"x": (F32, ["n", 2, "h", "w"]), "sizes": (I64, [4])}, ["y"])
    image = np.random.default_rng(0).random((1, 2, 5, 6), np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": image, "sizes": numbers(1, 2, *sizes)})
    np.testing.assert_allclose(load(model)(image, numbers(1, 2, *sizes)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
                                       "pytorch_half_pixel"])  # fmt: skip
@pytest.mark.parametrize(("axes", "exclude", "cubic"), [([], 0, -0.75), ([3, 2], 1, -0.5)])
def test_cubic_resize_to_sizes_of_the_call(transform: str, axes: list[int], exclude: int, cubic: float) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], "resize", mode="cubic", coordinate_transformation_mode=transform,
        cubic_coeff_a=cubic, exclude_outside=exclude, **({"axes": axes} if axes else {}),
    )  # fmt: skip
    model = make_model([node], {"x": (F32, ["n", 2, "h", "w"]), "sizes": (I64, [len(axes) or 4])}, ["y"])
    session = load(model)
    for extents, sizes in (((1, 2, 5, 7), (9, 16)), ((3, 2, 7, 3), (4, 2)), ((1, 2, 1, 5), (3, 2))):
        image = np.random.default_rng(0).random(extents, np.float32)
        given = numbers(*reversed(sizes)) if axes else numbers(*extents[:2], *sizes)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": image, "sizes": given})
        np.testing.assert_allclose(session(image, given), wanted, rtol=1e-4, atol=1e-5)


def test_cubic_resize_of_batches_fails_in_the_call() -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], "resize", mode="cubic", exclude_outside=1)
    session = load(make_model([node], {"x": (F32, ["n", 2, 5, 7]), "sizes": (I64, [4])}, ["y"]))
    with pytest.raises(CallError, match="sizes must keep the extents of the first two axes"):
        session(np.ones((1, 2, 5, 7), np.float32), numbers(2, 2, 5, 7))
