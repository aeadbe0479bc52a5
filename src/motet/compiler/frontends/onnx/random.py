"""Writes random numbers as constants, or as a hash of their indices.

    RandomUniform, RandomNormal, …Like, Bernoulli, Multinomial, Dropout in training

A program has no state: it returns the same numbers in every call, determined by the attribute `seed` or, without one,
by the node's name. Of static extents they are numpy's numbers for that seed, as in ONNX's reference. Of dynamic
extents, or if there are many, each is a hash of its index (squaring modulo a prime) and the seed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_PRIME = (1 << 31) - 1
_MOST = 1 << 20  # elements of a constant; more are hashed


def _seed(node: onnx.NodeProto) -> int:
    given = attribute(node, "seed", None)
    if given is None or math.isnan(given):
        return zlib.crc32(node.name.encode())
    return int(given) % (1 << 32)


def _number(w: NodeWriter, value: float | int) -> str:
    return w.constant(np.array(value, np.int64 if isinstance(value, int) else np.float32), "number")


def _hashed(w: NodeWriter, count: str, stream: int) -> str:
    """`count` numbers in the open interval (0, 1)."""
    import onnx

    chosen = np.random.RandomState((_seed(w.node) + stream) % (1 << 32))
    factor, *shifts = (int(item) for item in chosen.randint(1 << 20, _PRIME, 4))
    place = w.add("Mod", w.add("Range", _number(w, 0), count, _number(w, 1)), _number(w, _PRIME))
    value = _mixed(w, place, factor, shifts[0])
    for shift in shifts[1:]:
        square = w.add("Mul", value, w.add("Add", value, _number(w, shift)))
        value = w.add("Mod", square, _number(w, _PRIME))
        value = _mixed(w, value, factor, shift)
    high = w.add("Div", value, _number(w, 1 << 8))  # the bits that float32 can hold, so that no number rounds to 1
    wide = w.add("Add", w.cast(high, onnx.TensorProto.FLOAT), _number(w, 0.5))
    return w.add("Mul", wide, _number(w, 2.0**-23))


def _mixed(w: NodeWriter, value: str, factor: int, shift: int) -> str:
    return w.add("Mod", w.add("Add", w.add("Mul", value, _number(w, factor)), _number(w, shift)), _number(w, _PRIME))


def _uniform(w: NodeWriter, shape: Sequence[int] | None, like: str) -> str:
    """Uniform numbers between 0 and 1, of the shape given or that of `like`."""
    if shape is not None and math.prod(shape) <= _MOST:
        numbers = np.random.RandomState(_seed(w.node)).uniform(0, 1, tuple(shape))
        return w.constant(np.minimum(numbers.astype(np.float32), np.float32(1 - 2**-24)), "uniform")
    return _in_place(w, _hashed(w, _size(w, shape, like), 0), shape, like)


def _normal(w: NodeWriter, shape: Sequence[int] | None, like: str) -> str:
    """Normal numbers of mean 0 and variance 1."""
    if shape is not None and math.prod(shape) <= _MOST:
        numbers = np.random.RandomState(_seed(w.node)).standard_normal(tuple(shape))
        return w.constant(numbers.astype(np.float32), "normal")
    count = _size(w, shape, like)
    first, second = (_hashed(w, count, stream) for stream in (0, 1))
    radius = w.add("Sqrt", w.add("Mul", w.add("Log", first), _number(w, -2.0)))
    angle = w.add("Cos", w.add("Mul", second, _number(w, 2 * math.pi)))
    return _in_place(w, w.add("Mul", radius, angle), shape, like)


def _size(w: NodeWriter, shape: Sequence[int] | None, like: str) -> str:
    return w.add("Size", like) if shape is None else _number(w, math.prod(shape))


def _in_place(w: NodeWriter, value: str, shape: Sequence[int] | None, like: str) -> str:
    return w.add("Reshape", value, w.add("Shape", like)) if shape is None else w.reshape(value, shape)


def _drawn(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """RandomUniform, RandomNormal, RandomUniformLike and RandomNormalLike."""
    import onnx

    like = node.input[0] if node.input else ""
    shape = facts.shapes.get(like) if like else tuple(attribute(node, "shape", ()))
    kind = attribute(node, "dtype", 0) or (facts.types.get(like, 0) if like else onnx.TensorProto.FLOAT)
    if not kind:
        return None
    w = NodeWriter(node, facts)
    if node.op_type.startswith("RandomUniform"):
        low, high = attribute(node, "low", 0.0), attribute(node, "high", 1.0)
        value, factor, offset = _uniform(w, shape, like), high - low, low
    else:
        value, factor, offset = _normal(w, shape, like), attribute(node, "scale", 1.0), attribute(node, "mean", 0.0)
    value = w.add("Add", w.add("Mul", value, _number(w, float(factor))), _number(w, float(offset)))
    return w.done([w.cast(value, kind)])


def _bernoulli(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """1 with the probability given by each element, else 0."""
    import onnx

    like = node.input[0]
    if like not in facts.types:
        return None
    w = NodeWriter(node, facts)
    chosen = w.add("Less", _uniform(w, facts.shapes.get(like), like), w.cast(like, onnx.TensorProto.FLOAT))
    return w.done([w.cast(chosen, attribute(node, "dtype", 0) or facts.types[like])])


def _multinomial(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Multinomial: the number of classes whose cumulative probability is below the drawn number."""
    import onnx

    shape, count = facts.shapes.get(node.input[0]), attribute(node, "sample_size", 1)
    if shape is None:
        raise facts.model.error(
            f"node {node.name!r}: Multinomial is supported for extents that are known when compiling"
        )
    w = NodeWriter(node, facts)
    logs = w.cast(node.input[0], onnx.TensorProto.FLOAT)
    ends = w.add("CumSum", w.add("Softmax", logs, axis=1), _number(w, 1))
    ends = w.over("Unsqueeze", w.slice(ends, 1, 0, -1), [1])  # the last class takes the rest
    drawn = w.over("Unsqueeze", _uniform(w, (shape[0], count), ""), [2])
    beyond = w.cast(w.add("Not", w.add("Less", drawn, ends)), onnx.TensorProto.FLOAT)
    places = w.over("ReduceSum", beyond, [2], keepdims=0)
    return w.done([w.cast(places, attribute(node, "dtype", onnx.TensorProto.INT32))])


def _dropout(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Dropout in training mode drops elements whose drawn number is below the ratio; both may be dynamic."""
    import onnx

    training = node.input[2] if len(node.input) > 2 else ""
    known = facts.model.constants.get(training) if training else np.array(False)
    like, kind = node.input[0], facts.types.get(node.input[0])
    if kind is None or facts.version < 12 or (known is not None and not known.any()):
        return None
    w = NodeWriter(node, facts)
    ratio = w.cast(node.input[1], onnx.TensorProto.FLOAT) if node.input[1] else _number(w, 0.5)
    kept = w.add("Not", w.add("Less", _uniform(w, facts.shapes.get(like), like), ratio))
    if known is None:
        kept = w.add("Or", kept, w.add("Not", training))
        ratio = w.add("Mul", ratio, w.cast(training, onnx.TensorProto.FLOAT))
    narrow = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    wide = w.cast(like, onnx.TensorProto.FLOAT) if narrow else like
    factor = w.add("Div", _number(w, 1.0), w.add("Sub", _number(w, 1.0), ratio))
    if kind == onnx.TensorProto.DOUBLE:
        factor = w.cast(factor, kind)
    zero = w.constant(np.zeros((), np.float64 if kind == onnx.TensorProto.DOUBLE else np.float32), "zero")
    result = w.cast(w.add("Where", kept, w.add("Mul", wide, factor), zero), kind)
    return w.done([result, kept])


RULES: dict[str, Rule] = {
    "Bernoulli": _bernoulli, "Dropout": _dropout, "Multinomial": _multinomial,
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _drawn),
}  # fmt: skip
