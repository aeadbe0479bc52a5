"""Scatters of rows and windows, in random shapes, against numpy in f64, and the windows that are recovered."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.seeds import seeds

import motet
from motet.compiler import service
from motet.compiler.request import CompileRequest
from motet.errors import CallError

COMBINED: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "none": None}


def scatter_nd(
    shape: list[int], count: list[int], depth: int, reduction: str, constants: dict[str, np.ndarray] | None = None
) -> bytes:
    """ScatterND of `count` indices of `depth` components; what is not in `constants` is given by calls."""
    from onnx import TensorProto, helper, numpy_helper

    inside = [*count, *shape[depth:]]
    inputs = [("x", 1, shape), ("i", TensorProto.INT64, [*count, depth]), ("u", 1, inside)]
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], "written", reduction=reduction)
    constants = constants or {}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(*each) for each in inputs if each[0] not in constants],
        [helper.make_tensor_value_info("y", 1, shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def expected(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    y = x.astype(np.float64)
    depth = indices.shape[-1]
    rows = updates.reshape(-1, *x.shape[depth:]).astype(np.float64)
    for place, row in zip(indices.reshape(-1, depth), rows, strict=True):
        at = tuple(place)
        y[at] = row if reduction == "none" else COMBINED[reduction](y[at], row)
    return y


def drawn(seed: int) -> tuple[list[int], list[int], int, str]:
    """A shape, a shape of indices, the number of indexed dimensions, and what is done."""
    rng = random.Random(seed)
    rank = rng.randint(1, 4)
    shape = [rng.choice((1, 2, 3, 5, 7, 16, 17)) for _ in range(rank)]
    if seed % 4 == 0:
        shape[-1] = rng.choice((33, 127, 300, 1031))  # long rows are divided into strips
    depth = rng.randint(1, rank)
    count = [rng.choice((1, 2, 5, 31))] if seed % 3 else [rng.choice((1, 3)), 4]
    return shape, count, depth, rng.choice(list(COMBINED))


@pytest.mark.parametrize("seed", seeds(24))
def test_scatters_agree_with_numpy(seed: int) -> None:
    shape, count, depth, reduction = drawn(seed)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape, np.float32)
    indices = np.stack([rng.integers(-size, size, count) for size in shape[:depth]], -1)
    updates = rng.standard_normal([*count, *shape[depth:]], np.float32)
    before = x.copy()
    with motet.load(motet.compile(scatter_nd(shape, count, depth, reduction))) as session:
        found = session.main(x, indices, updates)
        np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(found, expected(x, indices, updates, reduction), 2e-5, 2e-5)


@pytest.mark.parametrize("names", ["x", "i", "u", "xi", "xu", "iu", "xiu"])
@pytest.mark.parametrize("count", [1, 2])
def test_constants_are_scattered_and_scattered_into(names: str, count: int) -> None:
    tensors = {"x": np.full((2, 1), 7, np.float32), "i": np.arange(count)[:, None], "u": np.full((count, 1), 3, "f4")}
    constants = {name: tensors[name] for name in names}
    with motet.load(motet.compile(scatter_nd([2, 1], [count], 1, "none", constants))) as session:
        found = session.main(*[array for name, array in tensors.items() if name not in names])
    np.testing.assert_array_equal(found, expected(*tensors.values(), "none"))


def test_rows_are_windows_of_one_index() -> None:
    text = service.emit(CompileRequest(source=scatter_nd([50, 1, 6, 33], [20], 1, "add")), "kernels")
    (scatter,) = [line for line in text.splitlines() if "= tm_tensor.scatter" in line]
    assert "dimension_map = array<i64: 0>" in scatter
    assert "tensor<20x1x6x33xf32>, tensor<20x1xi64>" in scatter


def test_index_outside_is_an_error_of_the_call() -> None:
    with motet.load(motet.compile(scatter_nd([4, 40], [3], 1, "add"))) as session:
        given = np.zeros((4, 40), np.float32), np.array([[0], [4], [1]]), np.ones((3, 40), np.float32)
        with pytest.raises(CallError, match='ScatterND "written"'):
            session.main(*given)


@pytest.mark.parametrize("seed", range(20))
def test_elements_agree_with_numpy(seed: int) -> None:
    """ScatterElements along any axis, of fewer indices than elements along the others, of 32 or 64 bits."""
    from onnx import TensorProto, helper

    rng = random.Random(seed)
    shape = [rng.randint(1, 9) for _ in range(rng.randint(1, 3))]
    axis, reduction = rng.randrange(len(shape)), list(COMBINED)[seed % 5]
    count = [rng.randint(1, 20) if d == axis else rng.randint(1, size) for d, size in enumerate(shape)]
    if reduction == "none":  # each element once, else the order counts
        count[axis] = rng.randint(1, shape[axis])
    kind, dtype = rng.choice(((TensorProto.INT64, np.int64), (TensorProto.INT32, np.int32)))
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)
    inputs = [("x", 1, shape), ("i", kind, count), ("u", 1, count)]
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", 1, shape)])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    draw = np.random.default_rng(seed)
    x, updates = draw.standard_normal(shape, np.float32), draw.standard_normal(count, np.float32)
    if reduction == "none":
        places = np.argsort(draw.random([shape[axis] if d == axis else size for d, size in enumerate(count)]), axis)
        indices = np.take(places, range(count[axis]), axis) - shape[axis] * draw.integers(0, 2, count)
    else:
        indices = draw.integers(-shape[axis], shape[axis], count)
    y = x.astype(np.float64)
    for point in np.ndindex(*count):
        place = tuple(indices[point] if d == axis else at for d, at in enumerate(point))
        y[place] = COMBINED[reduction](y[place], updates[point]) if COMBINED[reduction] else updates[point]
    with motet.load(motet.compile(model.SerializeToString())) as session:
        np.testing.assert_allclose(session.main(x, indices.astype(dtype), updates), y, 2e-5, 2e-5)


@pytest.mark.parametrize("again", [False, True], ids=["dies", "is read again"])
def test_tensor_that_a_call_makes_is_updated_in_place(again: bool) -> None:
    """The sum is updated in its own memory, unless another operation needs it as it was."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"]),
        helper.make_node("ScatterND", ["sum", "i", "u"], ["written"], reduction="add"),
        helper.make_node("Sub", ["written", "sum" if again else "x"], ["difference"]),
        helper.make_node("Cos", ["difference"], ["y"]),
    ]
    inputs = [("x", 1, [60, 37]), ("i", TensorProto.INT64, [9, 1]), ("u", 1, [9, 37])]
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", 1, [60, 37])])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    rng = np.random.default_rng(5)
    x, updates = rng.standard_normal((60, 37), np.float32), rng.standard_normal((9, 37), np.float32)
    indices = rng.integers(-60, 60, (9, 1))
    before = 2 * x.astype(np.float64)
    y = np.cos(expected(before, indices, updates, "add") - (before if again else x))
    with motet.load(motet.compile(model.SerializeToString())) as session:
        for _ in range(2):
            np.testing.assert_allclose(session.main(x, indices, updates), y, 1e-4, 1e-5)


@pytest.mark.parametrize("shape", [(1, 8, 20, 16), (3, 7, 5), (2, 3, 4, 5, 9), (5, 1, 33), (4, 6, 1)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_inner_dimension_is_written_where_it_is(shape: tuple[int, ...], reduction: str) -> None:
    """Indices of the last dimension but one: the tensor is transposed before and after, as frontends write it."""
    from onnx import TensorProto, helper

    rank, axis, count = len(shape), len(shape) - 2, 4
    order = [axis, *(d for d in range(rank) if d != axis)]
    own = [count if d == axis else extent for d, extent in enumerate(shape)]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=order),
        helper.make_node("Transpose", ["u"], ["v"], perm=order),
        helper.make_node("ScatterND", ["t", "i", "v"], ["s"], reduction=reduction),
        helper.make_node("Transpose", ["s"], ["y"], perm=list(np.argsort(order))),
    ]
    inputs = [("x", 1, shape), ("i", TensorProto.INT64, [count, 1]), ("u", 1, own)]
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", 1, shape)])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    rng = np.random.default_rng(3)
    x, updates = rng.standard_normal(shape, np.float32), rng.standard_normal(own, np.float32)
    indices = rng.integers(-shape[axis], shape[axis], (count, 1))
    y = expected(x.transpose(order), indices, updates.transpose(order), reduction).transpose(np.argsort(order))
    with motet.load(motet.compile(model)) as session:
        np.testing.assert_allclose(session.main(x, indices, updates), y, 1e-5, 1e-5)
    text = service.emit(CompileRequest(source=model), "kernels")
    (scatter,) = [line for line in text.splitlines() if "= tm_tensor.scatter" in line]
    assert "x".join(map(str, shape)) + "xf32>) {" in scatter or 1 in shape
