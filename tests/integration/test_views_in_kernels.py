"""Random chains of slices, concatenations, transpositions and element-wise operators against onnx's evaluator, and how
many kernels they become."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.seeds import seeds

import motet

EXTENTS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 33)
DTYPES = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64)


class Chain:
    """Nodes that are drawn one by one; `shapes` has the shape of each tensor so far."""

    def __init__(self, rng: random.Random, dtype: type) -> None:
        self.rng, self.dtype = rng, np.dtype(dtype)
        rank = rng.randint(1, 4)
        self.shapes: dict[str, tuple[int, ...]] = {"x": tuple(rng.choice(EXTENTS) for _ in range(rank))}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def numbers(self, values: list[int]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: int | list[int]) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], None, None, None, None, **attributes))
        self.shapes[name] = shape
        return name

    def sliced(self, name: str, axis: int, begin: int, end: int, step: int = 1) -> str:
        shape = list(self.shapes[name])
        shape[axis] = len(range(begin, end, step))
        bounds = [self.numbers([each]) for each in (begin, end, axis, step)]
        return self.add("Slice", [name, *bounds], tuple(shape))

    def roll(self, name: str) -> str:
        for axis in range(len(self.shapes[name])):
            size = self.shapes[name][axis]
            by = self.rng.randint(0, size)
            parts = [self.sliced(name, axis, by, size), self.sliced(name, axis, 0, by)]
            name = self.add("Concat", parts, self.shapes[name], axis=axis)
        return name

    def step(self, name: str) -> str:
        shape, rng = self.shapes[name], self.rng
        axis = rng.randrange(len(shape))
        kind = rng.choice(("slice", "roll", "split", "transpose", "unit", "add", "double"))
        if kind == "slice" and shape[axis]:
            begin = rng.randrange(shape[axis])
            return self.sliced(name, axis, begin, rng.randint(begin + 1, shape[axis]), rng.choice((1, 1, 2)))
        if kind == "roll":
            return self.roll(name)
        if kind == "split":
            cut = rng.randint(0, shape[axis])
            pieces = [self.sliced(name, axis, 0, cut), self.sliced(name, axis, cut, shape[axis])]
            pieces = [self.add("Neg", [pieces[0]], self.shapes[pieces[0]]), *pieces[1:]]
            return self.add("Concat", pieces[:: rng.choice((1, -1))], shape, axis=axis)
        if kind == "transpose":
            order = rng.sample(range(len(shape)), len(shape))
            return self.add("Transpose", [name], tuple(shape[i] for i in order), perm=order)
        if kind == "unit" and len(shape) < 5:
            wide = (*shape[:axis], 1, *shape[axis:])
            return self.add("Unsqueeze", [name, self.numbers([axis])], wide)
        if kind == "add":
            return self.add("Add", [name, name], shape)
        return self.add("Neg", [name], shape)

    def model(self, results: list[str]) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", kind, self.shapes["x"])],
            [helper.make_tensor_value_info(name, kind, None) for name in results], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("seed", seeds(16))
def test_chains(seed: int) -> None:
    rng = random.Random(seed)
    chain = Chain(rng, DTYPES[seed % len(DTYPES)])
    name = "x"
    for _ in range(rng.randint(3, 9)):
        name = chain.step(name)
    results = list(dict.fromkeys([name, chain.add("Neg", [rng.choice(sorted(chain.shapes))], ())]))
    model = chain.model(results)
    x = np.random.default_rng(seed).integers(-9, 9, chain.shapes["x"]).astype(chain.dtype)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    level = ("x86-64-v3", "x86-64-v4")[seed % 2]
    found = motet.load(motet.compile(model.SerializeToString(), devices=f"host{{cpu={level}}}", cache=False))(x)
    for array, reference in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, reference, err_msg=f"seed {seed}")


def kernels_of(artifact: motet.Artifact) -> int:
    return len(motet.load(artifact).variants[0].kernels)


def test_a_rotation_of_all_axes_is_one_kernel() -> None:
    chain = Chain(random.Random(1), np.float32)
    chain.shapes["x"] = (3, 17, 9, 5)
    model = chain.model([chain.roll("x")])
    artifact = motet.compile(model.SerializeToString(), devices="host{cpu=x86-64-v3}", cache=False)
    assert kernels_of(artifact) == 1


def test_areas_of_boxes_are_one_kernel() -> None:
    """Differences of corners, multiplied: two columns of an element-wise result that is not stored."""
    chain = Chain(random.Random(1), np.float32)
    chain.shapes["x"] = (41, 4)
    low, high = chain.sliced("x", 1, 0, 2), chain.sliced("x", 1, 2, 4)
    size = chain.add("Sub", [high, low], (41, 2))
    sides = [chain.sliced(size, 1, axis, axis + 1) for axis in range(2)]
    sides = [chain.add("Squeeze", [side, chain.numbers([1])], (41,)) for side in sides]
    model = chain.model([chain.add("Mul", sides, (41,))])
    artifact = motet.compile(model.SerializeToString(), devices="host{cpu=x86-64-v3}", cache=False)
    assert kernels_of(artifact) == 1
    x = np.random.default_rng(1).random((41, 4), np.float32)
    np.testing.assert_allclose(motet.load(artifact)(x), (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]), rtol=1e-6)
