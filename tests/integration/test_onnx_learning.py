"""What scikit-learn's converters write, and the steps of optimisers, against ONNX's reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from tests.integration.onnx_nodes import Node, model_of, run

from motet.compiler.frontends.onnx.loading import load_onnx
from motet.errors import CompileError

RANDOM = np.random.default_rng(0)
ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"
X = RANDOM.standard_normal((7, 3)).astype(np.float32)
MISSING = np.where(X > 1, np.float32(np.nan), X)
ZEROS = np.vstack([X, np.zeros((1, 3), np.float32)])
COUNTS = RANDOM.integers(0, 4, (5, 2)).astype(np.int64)
WEIGHTS = [float(value) for value in RANDOM.standard_normal(6)]
TREES = {  # two trees, of two levels and of one
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [1, 0, 0, 0, 0, 2, 0, 0], "nodes_values": [0.1, -0.2, 0, 0, 0, 0.3, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0], "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
}  # fmt: skip
LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2], "ids": [0, 1, 0, 1, 0],
          "weights": [0.5, -1.5, 2.0, 0.25, 3.0]}  # fmt: skip
ALL_LEAVES = {"treeids": [0, 0, 0, 0, 0, 0, 1, 1, 1, 1], "nodeids": [2, 2, 3, 3, 4, 4, 1, 1, 2, 2], "ids": [0, 1] * 5,
              "weights": [0.5, -1.5, 2.0, 0.25, 3.0, 1.0, -2.0, 4.0, 0.0, 0.125]}  # fmt: skip


def _leaves(group: str, leaves: dict[str, list[float]]) -> dict[str, list[float]]:
    return {f"{group}_{name}": values for name, values in leaves.items()}


def _forest(value: np.ndarray, how: str, **more: object) -> Node:
    leaves = LEAVES if how == "SUM" else ALL_LEAVES
    return Node("TreeEnsembleRegressor", [value], {
        **TREES, **_leaves("target", leaves), "n_targets": 2, "aggregate_function": how, **more}, ML)  # fmt: skip


LEARNED = [
    Node("Scaler", [X], {"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 3.0]}, ML),
    Node("Scaler", [COUNTS], {"offset": [0.5], "scale": [2.0]}, ML),
    *(Node("Normalizer", [value], {"norm": norm}, ML) for norm in ("MAX", "L1", "L2") for value in (X, ZEROS)),
    Node("Binarizer", [X], {"threshold": 0.25}, ML),
    Node("Imputer", [MISSING], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}, ML),
    Node("Imputer", [COUNTS], {"imputed_value_int64s": [7], "replaced_value_int64": 2}, ML),
    Node("OneHotEncoder", [COUNTS], {"cats_int64s": [2, 0, 9], "zeros": 1}, ML),
    Node("LabelEncoder", [COUNTS], {"keys_int64s": [3, 0], "values_floats": [0.5, 9.0], "default_float": 4.0}, ML),
    Node("LabelEncoder", [COUNTS], {"keys_int64s": [1], "values_int64s": [5], "default_int64": -3}, ML),
    Node("ArrayFeatureExtractor", [X, np.array([2, 0], np.int64)], {}, ML),
    Node("FeatureVectorizer", [X, X[:, :1]], {"inputdimensions": [3, 1]}, ML),
    Node("LinearRegressor", [X], {"coefficients": WEIGHTS, "intercepts": [0.5, -1.0], "targets": 2}, ML),
    *(Node("LinearClassifier", [X], {"coefficients": WEIGHTS, "intercepts": [0.5, -1.0], "classlabels_ints": [3, 8],
                                     "post_transform": how}, ML, 2)
      for how in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")),
    *(Node("SVMRegressor", [X], {"coefficients": WEIGHTS[:2], "support_vectors": WEIGHTS, "n_supports": 2, "rho": [0.3],
                                 "kernel_type": kernel, "kernel_params": [0.4, 0.2, 3.0]}, ML)
      for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    _forest(X, "SUM"), _forest(MISSING, "SUM", base_values=[0.5, 2.0]), _forest(X[:1], "MIN"), _forest(X, "MAX"),
    _forest(X, "AVERAGE"),
    *(Node("TreeEnsembleClassifier", [X], {**TREES, **_leaves("class", ALL_LEAVES), "classlabels_int64s": [4, 6],
                                           "post_transform": how}, ML, 2) for how in ("NONE", "SOFTMAX", "LOGISTIC")),
]  # fmt: skip


def _compare(nodes: list[Node], rows: str) -> None:
    """With a number of rows that a call decides where they have a name."""
    model, given = model_of(nodes, ai_onnx_ml=3)
    expected = ReferenceEvaluator(model).run(None, given)
    for value in model.graph.input if rows else ():
        value.type.tensor_type.shape.dim[0].dim_param = value.name + rows
    for output, found, wanted in zip(model.graph.output, run(model, given), expected, strict=True):
        assert found.shape == wanted.shape, output.name
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=output.name)


def test_some_operators_of_scikit_learn_are_those_of_the_reference() -> None:
    _compare([LEARNED[2], LEARNED[10], LEARNED[18], LEARNED[24]], "rows")


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["", "rows"])
def test_operators_of_scikit_learn_are_those_of_the_reference(rows: str) -> None:
    _compare(LEARNED, rows)


def test_two_classes_by_the_weights_of_one() -> None:
    """As onnxruntime has it: labels by 0.5 where no weight is negative, else by 0."""
    one = {**LEAVES, "ids": [0] * 5, "weights": [0.125, 0.25, 0.5, 0.0, 0.25]}
    mixed = {**one, "weights": [-1.0, 0.25, 0.5, 0.5, -0.25]}
    nodes = [Node("TreeEnsembleClassifier", [X], {**TREES, **_leaves("class", leaves), "classlabels_int64s": [4, 6],
                                                  "post_transform": how}, ML, 2)
             for leaves, how in ((one, "NONE"), (mixed, "NONE"), (mixed, "LOGISTIC"))]  # fmt: skip
    model, given = model_of(nodes, ai_onnx_ml=3)
    labels, scores, mixed_labels, mixed_scores, _, logistic = run(model, given)
    sums = {name: _walked(leaves["weights"]) for name, leaves in (("one", one), ("mixed", mixed))}
    np.testing.assert_allclose(scores, np.stack([1 - sums["one"], sums["one"]], 1), atol=1e-6)
    np.testing.assert_array_equal(labels, np.where(sums["one"] > 0.5, 6, 4))
    np.testing.assert_allclose(mixed_scores, np.stack([-sums["mixed"], sums["mixed"]], 1), atol=1e-6)
    np.testing.assert_array_equal(mixed_labels, np.where(sums["mixed"] > 0, 6, 4))
    np.testing.assert_allclose(logistic[:, 1], 1 / (1 + np.exp(-sums["mixed"])), atol=1e-6)


def _walked(weights: list[float]) -> np.ndarray:
    """What both trees of TREES have for the rows of X, by the weights of leaves in order."""
    first = np.where(X[:, 1] <= 0.1, np.where(X[:, 0] > -0.2, weights[0], weights[1]), weights[2])
    return first + np.where(X[:, 2] < 0.3, weights[3], weights[4])


def test_steps_of_optimisers() -> None:
    shapes = [(3, 2), (5,)]
    tensors, gradients, state, other = ([RANDOM.random(shape).astype(np.float32) for shape in shapes] for _ in range(4))
    rate = np.array(0.1, np.float32)
    nodes = [
        node for count in (0, 3) for node in (
            Node("Adagrad", [rate, np.array(count), *tensors, *gradients, *state],
                 {"norm_coefficient": 0.01, "epsilon": 1e-5, "decay_factor": 0.1}, TRAINING, 4),
            Node("Adam", [rate, np.array(count), *tensors, *gradients, *state, *other],
                 {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.95, "epsilon": 1e-5, "norm_coefficient_post": 0.1},
                 TRAINING, 6),
            *(Node("Momentum", [rate, np.array(count), *tensors, *gradients, *state],
                   {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": mode}, TRAINING, 4)
              for mode in ("standard", "nesterov")),
        )
    ]  # fmt: skip
    model, given = model_of(nodes, ai_onnx_preview_training=1)  # no operators of ONNX's own domain
    expected = ReferenceEvaluator(model).run(None, given)
    for output, found, wanted in zip(model.graph.output, run(model, given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=output.name)


def test_maps_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = model_of([LEARNED[14]], ai_onnx_ml=3)
    name = model.graph.node[0].output[0]
    model.graph.node.append(onnx.helper.make_node("ZipMap", [name], ["map"], "z", domain=ML, classlabels_int64s=[0, 1]))
    kind = onnx.helper.make_map_type_proto(onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(1, None))
    model.graph.output[0].CopyFrom(onnx.helper.make_value_info("map", onnx.helper.make_sequence_type_proto(kind)))
    program = load_onnx(model.SerializeToString(), "m.onnx")
    assert "tensor<7x2xf32>" in str(program.module.body.operations[0].type.results[0])
    assert "'map' is a tensor, not a list of maps: ZipMap 'z' is left out" in caplog.text


@pytest.mark.parametrize(("node", "what"), [
    (Node("LinearClassifier", [X], {"coefficients": WEIGHTS, "intercepts": [0.5, 1.0],
                                   "classlabels_strings": ["a", "b"]}, ML, 2),
     "LinearClassifier with labels of strings is not supported; expected classlabels_ints"),
    (Node("LinearRegressor", [X], {"coefficients": WEIGHTS, "targets": 4}, ML), "6 coefficients and 0 intercepts"),
    (_forest(X, "SUM", nodes_truenodeids=[1, 0, 0, 0, 0, 1, 0, 0]), "its nodes lead in a circle"),
    (_forest(X, "SUM", nodes_truenodeids=[1, 9, 0, 0, 0, 1, 0, 0]), "it names a node that there is not"),
    (_forest(X, "SUM", n_targets=1), "weights of its leaves do not fit"),
    (_forest(X, "SUM", nodes_values=[0.0]), "its lists of nodes differ in length"),
    (Node("OneHotEncoder", [COUNTS], {"cats_strings": ["a"]}, ML), "OneHotEncoder of strings"),
])  # fmt: skip
def test_what_does_not_fit_is_named(node: Node, what: str) -> None:
    model, _ = model_of([node], ai_onnx_ml=3)
    with pytest.raises(CompileError, match=f"node '{node.operator}0'.*{what}"):
        load_onnx(model.SerializeToString(), "m.onnx")
