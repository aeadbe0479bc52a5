"""GatherND and ScatterND whose indices have a last extent that only a call knows: the number of indexed axes follows
from ranks, or the model is refused. Against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError, CompileError

DATA = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)


def model(op: str, index: int, others: dict[str, int | None], **attributes: Any) -> onnx.ModelProto:
    """A node with data of three axes and indices of `index`; `others` are ranks of the updates `u` and the result `y`,
    None if not declared. No extent is known."""
    def tensor(name: str, kind: int, rank: int | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, None if rank is None else [f"{name}{d}" for d in range(rank)])

    values = [tensor("x", TensorProto.FLOAT, 3), tensor("i", TensorProto.INT64, index)]
    values += [tensor(name, TensorProto.FLOAT, rank) for name, rank in others.items()]
    node = helper.make_node(op, [value.name for value in values[:-1]], ["y"], "placed", **attributes)
    graph = helper.make_graph([node], "g", values[:-1], values[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(source: onnx.ModelProto, wrong: np.ndarray, **operands: np.ndarray) -> None:
    """Compares with the reference; indices `wrong`, of another depth, must be refused with the node and both depths."""
    expected: Any = next(iter(ReferenceEvaluator(source).run(None, {"x": DATA, **operands})))
    with motet.load(motet.compile(source, cache=False)) as session:
        np.testing.assert_allclose(session(x=DATA, **operands), expected, rtol=1e-6, strict=True)
        both = f"{wrong.shape[-1]} and {operands['i'].shape[-1]}"
        with pytest.raises(CallError, match=rf'"placed": axis {wrong.ndim - 1} of input 1 must be .*: {both}'):
            session(x=DATA, **{**operands, "i": wrong})


def places(*shape: int, first: int = 0) -> np.ndarray:
    """Different indices of as many components as the last extent, some of them negative."""
    every = np.moveaxis(np.indices(DATA.shape[first : first + shape[-1]]), 0, -1).reshape(-1, shape[-1])
    chosen = np.random.default_rng(1).permutation(every)[: np.prod(shape[:-1], dtype=int)].reshape(shape)
    chosen[..., -1] -= np.where(chosen[..., -1] > 1, DATA.shape[first + shape[-1] - 1], 0)
    return chosen


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (2, 2)], ids=str)
def test_gathered_by_the_declared_rank(shape: tuple[int, ...], depth: int) -> None:
    source = model("GatherND", len(shape) + 1, {"y": len(shape) + 3 - depth})
    check(source, places(*shape, depth % 3 + 1), i=places(*shape, depth))


@pytest.mark.parametrize(("batch", "depth", "rank"), [(1, 1, 3), (1, 2, 2), (2, 1, 3), (2, 1, None)])
def test_gathered_in_batches(batch: int, depth: int, rank: int | None) -> None:
    """Behind two axes of batches one axis is left, whatever the result's rank."""
    own = [4, 3] if batch == 1 else [4, 5]
    source = model("GatherND", 3, {"y": rank and rank - (batch == 2)}, batch_dims=batch)
    indices = np.random.default_rng(2).integers(-5, 5, (*own, depth))
    check(source, np.zeros((*own, depth % 2 + 1), np.int64), i=indices)


@pytest.mark.parametrize(("depth", "reduction"), [
    (1, "none"), (2, "none"), (3, "none"), (1, "add"), (2, "mul"), (3, "min"), (2, "max"),
])
def test_scattered_by_the_rank_of_updates(depth: int, reduction: str) -> None:
    source = model("ScatterND", 2, {"u": 4 - depth, "y": None}, reduction=reduction)
    updates = np.random.default_rng(3).standard_normal((3, *DATA.shape[depth:])).astype(np.float32)
    indices = places(3, depth)
    if reduction != "none":
        indices[2] = indices[0]
    check(source, places(3, depth % 3 + 1), i=indices, u=updates)


def test_gathered_in_a_body() -> None:
    """By the rank that the body declares for the value."""
    def tensor(name: str, kind: int, *extents: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, extents)

    f, inner = TensorProto.FLOAT, helper.make_node("GatherND", ["x", "i"], ["t"], "placed")
    then = helper.make_graph([inner], "then", [], [tensor("t", f, 2, 6)])
    other = helper.make_graph([helper.make_node("Neg", ["z"], ["e"])], "other", [], [tensor("e", f, 2, 6)])
    node = helper.make_node("If", ["on"], ["y"], then_branch=then, else_branch=other)
    given = [tensor("on", TensorProto.BOOL), tensor("x", f, *DATA.shape), tensor("i", TensorProto.INT64, 2, "d"),
             tensor("z", f, 2, 6)]
    graph = helper.make_graph([node], "g", given, [tensor("y", f, 2, 6)])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with motet.load(motet.compile(source, cache=False)) as session:
        found = session(x=DATA, i=np.array([[1, 2], [3, -1]]), on=np.array(True), z=np.zeros((2, 6), np.float32))
    np.testing.assert_array_equal(found, DATA[[1, 3], [2, -1]])


@pytest.mark.parametrize(("op", "others", "said"), [
    ("GatherND", {"y": None}, r"a result of rank \? .*, or a result of a declared rank from 1 to 3"),
    ("GatherND", {"y": 5}, "a result of rank 5 .*, or a result of a declared rank from 1 to 3"),
    ("ScatterND", {"u": 0, "y": 3}, "updates of rank 0 .*, or updates of a declared rank from 1 to 3"),
])
def test_refused_where_ranks_leave_it_open(op: str, others: dict[str, int | None], said: str) -> None:
    with pytest.raises(CompileError, match=f"node 'placed': {op} by indices of an unknown last extent with {said}"):
        motet.compile(model(op, 2, others), cache=False)
