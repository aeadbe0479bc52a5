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


def test_steps_are_one_loop() -> None:
    text = service.emit(CompileRequest(source=model(1, 1, 300, 300)), "kernels")
    loops = [line for line in text.splitlines() if " = scf.for " in line]
    assert len(loops) == 2  # of the call, and of the number of its results before it
    assert text.count(" = call @") < 100
