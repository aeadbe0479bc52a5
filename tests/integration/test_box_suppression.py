"""NonMaxSuppression against its definition, in f64, for few and many boxes; its loop over boxes stays one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.compiler import service
from motet.compiler.request import CompileRequest

LEAST, OVERLAP = 0.2, 0.45


def model(batches: int, classes: int, boxes: int, most: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    given = {"most": np.array([most]), "overlap": np.array([OVERLAP], "f4"), "least": np.array([LEAST], "f4")}
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *given], ["y"], "kept")
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("boxes", 1, [batches, boxes, 4]),
         helper.make_tensor_value_info("scores", 1, [batches, classes, boxes])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of boxes given by two opposite corners, in any order."""
    low = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
    high = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
    common = np.prod(np.maximum(high - low, 0))
    areas = [abs(np.prod(each[2:] - each[:2])) for each in (a, b)]
    return float(common / (sum(areas) - common))


def kept(boxes: np.ndarray, scores: np.ndarray, most: int) -> list[int]:
    found: list[int] = []
    for number in np.argsort(-scores, kind="stable"):
        if scores[number] <= LEAST or len(found) == most:
            break
        if all(overlap(boxes[number], boxes[other]) <= OVERLAP for other in found):
            found.append(int(number))
    return found


@pytest.mark.parametrize(
    ("batches", "classes", "boxes", "most"), [(1, 1, 1, 5), (1, 2, 2, 9), (2, 3, 37, 4), (1, 2, 517, 600)]
)
def test_boxes_kept_are_those_of_the_definition(batches: int, classes: int, boxes: int, most: int) -> None:
    rng = np.random.default_rng(boxes)
    corners = rng.random((batches, boxes, 2)) * 90
    given = np.concatenate([corners, corners + rng.uniform(-30, 30, corners.shape)], -1).astype("f4")
    scores = rng.permuted(np.linspace(0, 1, batches * classes * boxes)).reshape(batches, classes, boxes).astype("f4")
    expected = [
        [batch, number, box] for batch in range(batches) for number in range(classes)
        for box in kept(given[batch].astype("f8"), scores[batch, number].astype("f8"), most)
    ]
    with motet.load(motet.compile(model(batches, classes, boxes, most))) as session:
        found = session.main(given, scores)
    assert found.tolist() == expected


def test_a_call_visits_boxes_once() -> None:
    text = service.emit(CompileRequest(source=model(1, 1, 300, 300)), "kernels")
    loops = [line for line in text.splitlines() if line.startswith("    %") and " = scf.for " in line]
    assert len(loops) == 2  # clears the kept boxes, and visits all; the number of results comes from the same loop
    assert text.count("tm_tensor.sort") == 1


@pytest.mark.parametrize("boxes", [63, 64, 65, 129])
def test_kept_boxes_fill_blocks(boxes: int) -> None:
    corners = np.arange(boxes, dtype="f4")[:, None] * 3 + np.zeros((1, 2), "f4")
    given = np.concatenate([corners, corners + 1], 1)[None]
    given[0, -1] = given[0, 0]  # the last overlaps with the first alone
    scores = np.linspace(1, 0.5, boxes, dtype="f4").reshape(1, 1, boxes)
    with motet.load(motet.compile(model(1, 1, boxes, boxes))) as session:
        found = session.main(given, scores)
    assert found[:, 2].tolist() == list(range(boxes - 1))


def test_boxes_that_are_not_numbers_overlap_with_none() -> None:
    given = np.array([[[0, 0, 2, 2], [np.nan, 0, 2, 2], [0, 0, np.inf, np.inf], [0, 0, 2, 2.1]]], "f4")
    scores = np.array([[[0.9, 0.8, 0.7, 0.6]]], "f4")
    with motet.load(motet.compile(model(1, 1, 4, 4))) as session:
        found = session.main(given, scores)
    assert found[:, 2].tolist() == [0, 1, 2]


def test_no_box_is_kept_where_the_limit_is_zero() -> None:
    """The number of rows then follows from no input, but from a loop that is left in the program."""
    given = np.random.default_rng(0).random((2, 31, 4)).astype("f4")
    with motet.load(motet.compile(model(2, 2, 31, 0))) as session:
        found = session.main(given, np.ones((2, 2, 31), "f4"))
    assert found.shape == (0, 3)
