"""Writes ensembles of trees as walks through a table of their nodes, one step per level.

    place = the root of each tree, [rows, trees]
    repeat, as often as the deepest tree has levels:
        place = Where(x[feature[place]] ≤ split[place], yes[place], no[place])      a leaf points to itself
    result = Σ over trees of weights[place]

The time is the same for all inputs, and the number of operators is that of the levels, not of the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.ml import (
    chosen_labels,
    class_labels,
    dtype_of,
    float_kind,
    in_floats,
    numbers,
    post_transform,
    rows,
    transformed,
)
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")  # the numbering of TreeEnsemble
_LEAF = len(_MODES)
_OPERATORS = {"LEQ": "LessOrEqual", "LT": "Less", "GTE": "GreaterOrEqual", "GT": "Greater", "EQ": "Equal"}
_POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class _Forest:
    """The nodes of all trees by number: feature, threshold, comparison, successors, and whether NaN leads to `yes`;
    the leaves' weights by result, NaN where a leaf has none; the values of MEMBER nodes, padded."""

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    weights: np.ndarray
    roots: np.ndarray
    members: np.ndarray | None = None

    def depth(self) -> int | None:
        """The number of steps from a root to the farthest leaf; None if the nodes form a cycle."""
        level, places = 0, self.roots
        while (inner := places[self.modes[places] != _LEAF]).size:
            level, places = level + 1, np.unique(np.concatenate([self.yes[inner], self.no[inner]]))
            if level > len(self.modes):
                return None
        return level


def _bad(node: onnx.NodeProto, facts: ModelFacts, what: str) -> Exception:
    return facts.model.error(f"node {node.name!r}: {node.op_type}: {what}")


# -- walking ------------------------------------------------------------------------------------------


def _walk(w: NodeWriter, forest: _Forest) -> str:
    """The leaf that each row reaches in each tree."""
    node, facts, dtype = w.node, w.facts, dtype_of(float_kind(w, w.node.input[0]))
    depth = forest.depth()
    if depth is None:
        raise _bad(node, facts, "its nodes lead in a circle; expected trees")
    value = rows(w, in_floats(w, node.input[0]), node.input[0])
    first = w.slice(value, 1, 0, 1)
    place = w.add("Add", w.cast(w.add("Less", first, first), 7), w.constant(forest.roots, "roots"))
    tables = {
        "feature": w.constant(forest.features, "features"), "split": w.constant(forest.splits.astype(dtype), "splits"),
        "yes": w.constant(forest.yes, "yes"), "no": w.constant(forest.no, "no"),
        "mode": w.constant(forest.modes.astype(np.int64), "modes"), "missing": w.constant(forest.missing, "missing"),
    }  # fmt: skip
    if forest.members is not None:
        tables["members"] = w.constant(forest.members.astype(dtype), "members")
    for _ in range(depth):
        found = w.add("GatherElements", value, w.add("Gather", tables["feature"], place, axis=0), axis=1)
        taken = _taken(w, forest, tables, place, found)
        ways = (w.add("Gather", tables[way], place, axis=0) for way in ("yes", "no"))
        place = w.add("Where", taken, *ways)
    return place


def _taken(w: NodeWriter, forest: _Forest, tables: dict[str, str], place: str, found: str) -> str:
    """Whether the nodes at `place` lead to `yes`."""
    split = w.add("Gather", tables["split"], place, axis=0)
    used = sorted(set(forest.modes.tolist()) - {_LEAF})
    parts = [_compared(w, _MODES[mode], found, split, tables, place) for mode in used]
    taken = parts[-1]
    if len(used) > 1:
        modes = w.add("Gather", tables["mode"], place, axis=0)
        for mode, part in zip(used[:-1], parts[:-1], strict=True):
            same = w.add("Equal", modes, w.constant(np.array(mode, np.int64), "mode"))
            taken = w.add("Where", same, part, taken)
    if forest.missing.any():
        leads = w.add("Gather", tables["missing"], place, axis=0)
        taken = w.add("Or", taken, w.add("And", w.add("IsNaN", found), leads))
    return taken


def _compared(w: NodeWriter, mode: str, found: str, split: str, tables: dict[str, str], place: str) -> str:
    if mode == "NEQ":
        return w.add("Not", w.add("Equal", found, split))
    if mode == "MEMBER":
        values = w.add("Gather", tables["members"], place, axis=0)
        same = w.add("Equal", w.over("Unsqueeze", found, [2]), values)
        return w.cast(w.over("ReduceMax", w.cast(same, 6), [2], keepdims=0), 9)
    if mode in ("LEQ", "GTE") and w.facts.version < 12:
        equal = w.add("Equal", found, split)
        return w.add("Or", w.add("Less" if mode == "LEQ" else "Greater", found, split), equal)
    return w.add(_OPERATORS[mode], found, split)


def _aggregated(w: NodeWriter, forest: _Forest, how: str) -> str:
    """The sum, mean, minimum or maximum over a row's leaves of the weights of each result."""
    place, weights = _walk(w, forest), forest.weights
    dtype = dtype_of(float_kind(w, w.node.input[0]))
    if how in ("SUM", "AVERAGE"):
        leaves = w.add("Gather", w.constant(np.nan_to_num(weights).astype(dtype), "weights"), place, axis=0)
        total = w.over("ReduceSum", leaves, [1], keepdims=0)
        return total if how == "SUM" else w.add(
            "Div", total, w.constant(np.array(len(forest.roots), dtype), "trees"))  # fmt: skip
    if how not in ("MIN", "MAX"):
        raise refused(w.node, w.facts, f"with aggregate_function {how}", "SUM, AVERAGE, MIN or MAX")
    absent = np.inf if how == "MIN" else -np.inf
    table = np.where(np.isnan(weights), absent, weights).astype(dtype)
    leaves = w.add("Gather", w.constant(table, "weights"), place, axis=0)
    result = w.over("ReduceMin" if how == "MIN" else "ReduceMax", leaves, [1], keepdims=0)
    none = w.add("Equal", result, w.constant(np.array(absent, dtype), "absent"))
    return w.add("Where", none, w.constant(np.zeros((), dtype), "zero"), result)


# -- reading ------------------------------------------------------------------------------------------


def _by_name(node: onnx.NodeProto, facts: ModelFacts, group: str, results: int) -> _Forest:
    """Reads TreeEnsembleClassifier and TreeEnsembleRegressor, whose nodes are numbered within each tree; attributes
    that begin with `group` hold the leaves' weights."""
    trees, own = (np.array(attribute(node, f"nodes_{name}", []), np.int64) for name in ("treeids", "nodeids"))
    numbers_of = {pair: number for number, pair in enumerate(zip(trees.tolist(), own.tolist(), strict=True))}
    names = [mode.decode().removeprefix("BRANCH_") for mode in attribute(node, "nodes_modes", [])]
    if unknown := sorted({*names} - {*_MODES[:-1], "LEAF"}):
        raise refused(node, facts, f"with nodes of mode {unknown[0]}", "BRANCH_LEQ and its like, or LEAF")
    modes = np.array([_LEAF if name == "LEAF" else _MODES.index(name) for name in names], np.int64)
    features = np.array(attribute(node, "nodes_featureids", []), np.int64)
    splits = numbers(node, "nodes_values")
    ways = [np.array(attribute(node, f"nodes_{way}nodeids", []), np.int64) for way in ("true", "false")]
    if not len(modes) or any(len(each) != len(modes) for each in (trees, own, features, splits, *ways)):
        raise _bad(node, facts, "its lists of nodes differ in length, or are empty; expected one entry for each node")
    here = np.arange(len(modes))
    try:
        yes, no = (
            np.array([numbers_of[tree, to] if mode != _LEAF else number for number, tree, to, mode in zip(
                here.tolist(), trees.tolist(), way.tolist(), modes.tolist(), strict=True)], np.int64)
            for way in ways
        )  # fmt: skip
        at = [numbers_of[pair] for pair in zip(
            attribute(node, f"{group}_treeids", []), attribute(node, f"{group}_nodeids", []), strict=True)]  # fmt: skip
    except (KeyError, ValueError) as error:
        raise _bad(node, facts, f"it names a node that there is not: {error}") from None
    weights = _weights(node, facts, (len(modes), results), at, (
        np.array(attribute(node, f"{group}_ids", []), np.int64), numbers(node, f"{group}_weights")))  # fmt: skip
    missing = np.array(attribute(node, "nodes_missing_value_tracks_true", None) or np.zeros(len(modes)), np.bool_)
    leaf = modes == _LEAF
    roots = np.array([np.flatnonzero(trees == tree)[0] for tree in dict.fromkeys(trees.tolist())], np.int64)
    return _Forest(np.where(leaf, 0, features), np.where(leaf, 0, splits), modes, yes, no, missing, weights, roots)


def _weights(
    node: onnx.NodeProto, facts: ModelFacts, shape: tuple[int, int], at: Sequence[int], given: tuple[
        np.ndarray, np.ndarray
    ]
) -> np.ndarray:
    """The weights by node and result; weights of the same leaf and result are added up."""
    ids, values = given
    weights = np.full(shape, np.nan, np.float64)
    if not len(at) == len(ids) == len(values) or (len(ids) and (ids.min() < 0 or ids.max() >= shape[1])):
        raise _bad(node, facts, f"weights of its leaves do not fit; expected results 0 to {shape[1] - 1}, and a weight "
                   "for each leaf that is named")  # fmt: skip
    for place, number, value in zip(at, ids.tolist(), values.tolist(), strict=True):
        weights[place, number] = value + np.nan_to_num(weights[place, number])
    return weights


def _tensor(node: onnx.NodeProto, name: str) -> np.ndarray:
    import onnx

    found = attribute(node, name, None)
    return np.zeros(0) if found is None else onnx.numpy_helper.to_array(found).reshape(-1)


def _of_ensemble(node: onnx.NodeProto, facts: ModelFacts, results: int) -> _Forest:
    """Reads TreeEnsemble, which numbers inner nodes and leaves separately; leaves follow the inner nodes."""
    modes = _tensor(node, "nodes_modes").astype(np.int64)
    splits, values = _tensor(node, "nodes_splits"), _tensor(node, "leaf_weights")
    targets = np.array(attribute(node, "leaf_targetids", []), np.int64)
    inner, leaves = len(modes), len(values)
    features = np.array(attribute(node, "nodes_featureids", []), np.int64)
    ways: list[np.ndarray] = []
    for name in ("true", "false"):
        to, leaf = (np.array(attribute(node, f"nodes_{name}{what}", []), np.int64) for what in ("nodeids", "leafs"))
        ways.append(to + inner * leaf if len(to) == len(leaf) else to[:0])
    roots = np.array(attribute(node, "tree_roots", []), np.int64)
    fits = all(len(each) == inner for each in (splits, features, *ways)) and inner and leaves and len(roots)
    if not fits or len(targets) != leaves or modes.max() >= _LEAF:
        raise _bad(node, facts, "its lists of nodes, or of leaves, differ in length, or are empty")
    if any(len(each) and (each.min() < 0 or each.max() >= limit) for each, limit in (
        (ways[0], inner + leaves), (ways[1], inner + leaves), (roots, inner))):  # fmt: skip
        raise _bad(node, facts, "it names a node that there is not")
    yes, no = (np.concatenate([way, np.arange(inner, inner + leaves)]) for way in ways)
    no_values = np.zeros(leaves, np.int64)
    weights = _weights(node, facts, (inner + leaves, results), range(inner, inner + leaves), (targets, values))
    missing = np.array(attribute(node, "nodes_missing_value_tracks_true", None) or np.zeros(inner), np.bool_)
    return _Forest(
        np.concatenate([features, no_values]), np.concatenate([splits, no_values]), np.append(modes, no_values + _LEAF),
        yes, no, np.append(missing, no_values.astype(np.bool_)), weights, roots, _members(node, facts, modes, leaves),
    )  # fmt: skip


def _members(node: onnx.NodeProto, facts: ModelFacts, modes: np.ndarray, leaves: int) -> np.ndarray | None:
    """The values of each MEMBER node, in order; NaN separates the nodes' values in the attribute."""
    wanted = np.flatnonzero(modes == _MODES.index("MEMBER")).tolist()
    if not wanted:
        return None
    values = _tensor(node, "membership_values")
    groups = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[:-1]
    if len(groups) != len(wanted):
        raise _bad(node, facts, f"it has {len(groups)} lists of values for {len(wanted)} nodes of mode MEMBER")
    table = np.full((len(modes) + leaves, max(map(len, groups))), np.nan)
    for number, group in zip(wanted, groups, strict=True):
        table[number, : len(group)] = group
    return table


# -- operators ----------------------------------------------------------------------------------------


def _with_base(w: NodeWriter, value: str, base: np.ndarray, dtype: np.dtype[Any]) -> str:
    return w.add("Add", value, w.constant(base.astype(dtype), "base")) if base.size else value


def _ensemble(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if facts.rank(node.input[0]) is None:
        return None
    w, results = NodeWriter(node, facts), attribute(node, "n_targets", 1)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[attribute(node, "aggregate_function", 1)]
    found = _aggregated(w, _of_ensemble(node, facts, results), how)
    dtype = dtype_of(float_kind(w, node.input[0]))
    result = transformed(w, found, _POSTS[attribute(node, "post_transform", 0)], dtype)
    return w.done([w.cast(result, facts.types[node.input[0]])])


def _regressor(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    w, results = NodeWriter(node, facts), attribute(node, "n_targets", 1)
    how = attribute(node, "aggregate_function", b"SUM").decode()
    found = _aggregated(w, _by_name(node, facts, "target", results), how)
    dtype = dtype_of(float_kind(w, node.input[0]))
    found = _with_base(w, found, numbers(node, "base_values"), dtype)
    return w.done([w.cast(transformed(w, found, post_transform(node), dtype), onnx.TensorProto.FLOAT)])


def _classifier(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """TreeEnsembleClassifier. With two classes and weights for one, the score is the second class's, as in
    onnxruntime."""
    import onnx

    if facts.rank(node.input[0]) is None:
        return None
    labels = class_labels(node, facts, "classlabels_int64s")
    ids = attribute(node, "class_ids", [])
    if labels is None or not ids:
        raise _bad(node, facts, "it has no labels, or no weights; expected classlabels_int64s and class_ids")
    w, count = NodeWriter(node, facts), max(len(labels), max(ids) + 1)
    dtype = dtype_of(float_kind(w, node.input[0]))
    forest = _by_name(node, facts, "class", count)
    scores, base, how = _aggregated(w, forest, "SUM"), numbers(node, "base_values"), post_transform(node)
    if len(set(ids)) > 1 or count > 2:
        scores = _with_base(w, scores, base, dtype)
        places = w.add("ArgMax", scores, axis=1, keepdims=0)
        result = transformed(w, scores, how, dtype)
    else:
        one = _with_base(w, w.slice(scores, 1, ids[0], ids[0] + 1), base[-1:], dtype)
        positive = bool((np.nan_to_num(forest.weights) >= 0).all())
        limit = w.constant(np.array(0.5 if positive else 0.0, dtype), "limit")
        places = w.cast(w.over("Squeeze", w.add("Greater", one, limit), [1]), 7)
        result = _two_classes(w, one, positive, how, dtype)
        labels = np.array([0, *labels][-2:], np.int64)
    return w.done([chosen_labels(w, places, labels), w.cast(result, onnx.TensorProto.FLOAT)])


def _two_classes(w: NodeWriter, score: str, positive: bool, how: str, dtype: np.dtype[Any]) -> str:
    if how == "PROBIT":
        return transformed(w, score, how, dtype)
    if positive:
        other = w.add("Sub", w.constant(np.ones((), dtype), "one"), score)
        return w.add("Concat", other, score, axis=1)
    both = w.add("Concat", w.add("Neg", score), score, axis=1)
    return transformed(w, both, how, dtype)


RULES: dict[str, Rule] = {
    "TreeEnsemble": _ensemble, "TreeEnsembleClassifier": _classifier, "TreeEnsembleRegressor": _regressor,
}  # fmt: skip
