"""What ONNX's operators demand of the extents of their inputs, by operator.

A signature has the axes of each input. Those of one name are compared with the first one of that name.

    "_ c ..., c, c"            InstanceNormalization: inputs 1 and 2 have as many elements as axis 1 of input 0
    "*a, *a?, +"               PRelu: inputs after the first one broadcast to it
    "*a~ _ k | k, *a~ k _ | k" MatMul: of two vectors, of stacks of matrices that broadcast with each other

    _  any axis                3h    3 times axis h       c~  equal, or one of them 1    2   2
    ...  any axes              c?    1, or equal          c/32  one for each 32          >2  at least 2
    *a  axes, from the last    <c    at most              c&<a  both                     %2  a multiple of 2

`|` is between axes for other ranks; an input of a rank that is none of these, or that is absent, demands nothing. `+`
repeats the axes of the input before for all others. `{group}` is an attribute of the node, 1 if it is absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.extent_demands import Counted, Demand, Fixed, Tie
from motet.compiler.frontends.onnx.model import Extents, ShapedNode
from motet.compiler.frontends.onnx.simplify import attribute

if TYPE_CHECKING:
    import onnx

_PART = re.compile(r"([<>%]?)(\d*)([A-Za-z]\w*)?([?~]?)(?:/(\d+))?")
_ANY = "..."


def _read_signature(signature: str, extents: Sequence[Extents]) -> Iterator[Demand]:
    terms = signature.split(",")
    if terms[-1].strip() == "+":
        terms[-1:] = terms[-2:-1] * len(extents)
    parts = [
        (number, axis, match)
        for number, (term, own) in enumerate(zip(terms, extents, strict=False))
        for axis, place in enumerate(_axes_of(term, len(own))) for part in place.split("&")
        if part != "_" and (match := _PART.fullmatch(part))
    ]  # fmt: skip
    first: dict[str, tuple[int, int]] = {}
    for number, axis, match in parts:
        relation, count, name, size, block = match.groups()
        if not name and (relation != "%" or int(count) > 0):
            yield Fixed(number, axis, int(count), relation == "%", size == "?", relation == ">")
        elif match[0] == name:
            first.setdefault(name, (number, axis))
    for place, (number, axis, match) in enumerate(parts):
        relation, count, name, size, block = match.groups()
        if size == "~":
            for of, along, other in parts[:place]:
                if other[3] == name and of != number:
                    yield Tie(number, axis, of, along, either=True)
        elif first.get(name, (number, axis)) != (number, axis):
            times, blocks = int(count or 1), int(block or 1)
            yield Tie(number, axis, *first[name], size == "?", block=blocks, times=times, at_most=relation == "<")


def _axes_of(term: str, rank: int) -> list[str]:
    """The axes of an input of this rank."""
    for places in (alternative.split() for alternative in term.split("|")):
        run = next((axis for axis, place in enumerate(places) if place == _ANY or place[0] == "*"), None)
        if run is None and len(places) == rank:
            return places
        if run is not None and (count := rank - len(places) + 1) >= 0:
            axes = [re.sub(r"\*([a-z]+)", rf"\g<1>{back}", places[run]) for back in range(count, 0, -1)]
            return [*places[:run], *("_" if axis == _ANY else axis for axis in axes), *places[run + 1 :]]
    return []


def _axes(name: str, count: int, other: int | None = None, there: str = "_") -> str:
    """The axes `name`0, `name`1, …, with `there` for axis `other`."""
    return " ".join(there if axis == other else f"{name}{axis}" for axis in range(count))


# -- signatures that depend on attributes and ranks --------------------------------------------------


def _linear(node: ShapedNode) -> str:
    """A scale for the tensor, for each index along an axis, or for each block of indices; as many zero points."""
    rank, own, block = len(node.extents[0]), len(node.extents[1]), attribute(node.node, "block_size", 0)
    axis = attribute(node.node, "axis", 1)
    if not -rank <= axis < rank:
        return ""
    scale = _axes("s", own)
    if own == 1 and not block:
        scale = f"s0&a{axis % rank}?"
    elif own == rank and block:
        scale = " ".join(f"s{each}&a{each}" + (f"/{block}" if each == axis % rank else "") for each in range(rank))
    return f"{_axes('a', rank)}, {scale}, {_axes('s', own)}"


def _gemm(node: ShapedNode) -> str:
    left, right = ("k m" if attribute(node.node, "transA", 0) else "m k"), attribute(node.node, "transB", 0)
    return f"{left}, {'n k' if right else 'k n'}, m? n? | n?"


def einsum_axes(term: str, rank: int) -> list[str]:
    """The axes that a term of an equation names."""
    return _axes_of(" ".join("*ellipsis~" if place == _ANY else place for place in re.findall(r"\.{3}|\w", term)), rank)


def _einsum(node: ShapedNode) -> Iterator[Demand]:
    """The extents of each letter are equal, unless one is known to be 1; the axes of the ellipses broadcast."""
    terms = attribute(node.node, "equation", b"").decode().partition("->")[0].split(",")
    inputs = [
        ["_" if extent == 1 and "~" not in axis else axis
         for axis, extent in zip(einsum_axes(term, len(extents)), extents, strict=False)]
        for term, extents in zip(terms, node.extents, strict=False)
    ]  # fmt: skip
    return _read_signature(", ".join(map(" ".join, inputs)), node.extents)


def _recurrent(gates: int) -> Callable[[ShapedNode], str]:
    """A length and initial states for each sequence; a number for each unit and direction of a state; for each unit
    the rows, offsets and peepholes of all gates."""

    def signature(node: ShapedNode) -> str:
        steps, state = ("b s i", "b d h") if attribute(node.node, "layout", 0) else ("s b i", "d b h")
        return f"{steps}, d {gates}h i, d {gates}h h, d {2 * gates}h, b, {state}, {state}, d 3h"

    return signature


def _written(node: ShapedNode) -> str:
    """An update has the extents of the cache, except along the axis where it is written, which may be longer."""
    rank = len(node.extents[0])
    axis = attribute(node.node, "axis", -2) % max(rank, 1)
    there = f"<a{axis}" if attribute(node.node, "mode", b"linear") == b"linear" else "_"
    return f"{_axes('a', rank)}, {_axes('a', rank, axis, there)}, a0"


def _attended(node: ShapedNode) -> str:
    """Queries, keys and values of the same batch, keys and values of the same heads and places. A mask is broadcast to
    batch, heads and queries; along the keys it may be shorter."""
    keys, queries = (attribute(node.node, f"{name}_num_heads", 0) for name in ("kv", "q"))
    width = f"{queries // keys}d" if keys and queries % keys == 0 else "_"
    mask = "b? q? s? _ | q? s? _ | s? _"
    return f"b q s d | b s {width}, b h t d | b t d, b h t _ | b t %{{kv_num_heads}}, {mask}"


def _rotated(node: ShapedNode) -> str:
    """Sines and cosines for each place of each sequence, and for the halves of what is rotated of each head."""
    heads, rotated = attribute(node.node, "num_heads", 0), attribute(node.node, "rotary_embedding_dim", 0)
    half = str(rotated // 2) if rotated else "e"
    one, all_heads = ("_", "_") if rotated else ("2e", f"{2 * heads}e" if heads else "_")
    return f"b _ s {one} | b s {all_heads}, b? s? {half} | _ {half}, b? s? {half} | _ {half}"


def _joined(node: ShapedNode) -> str:
    rank = len(node.extents[0])
    return f"{_axes('a', rank, attribute(node.node, 'axis', 1) % max(rank, 1))}, +"


def _expanded(node: ShapedNode) -> str:
    result, rank = node.result or (), len(node.extents[0])
    places = result[len(result) - rank :] if len(result) >= rank else ()
    return " ".join(f"{extent}?" if isinstance(extent, int) else "_" for extent in places)


# -- demands that depend on values of constants, or on the result -----------------------------------


def _declared(node: ShapedNode) -> Iterator[Demand]:
    """The extents that the model declares for the result."""
    result = node.result or ()
    for axis, extent in enumerate(result if len(result) == len(node.extents[0]) else ()):
        if isinstance(extent, int):
            yield Fixed(0, axis, extent, reason=", as is declared")


def addressed(node: onnx.NodeProto, indices: np.ndarray, rank: int) -> list[int]:
    """The axes that an index addresses, one number each."""
    if node.op_type in ("GatherND", "ScatterND"):
        first = attribute(node, "batch_dims", 0)
        return [*range(first, first + indices.shape[-1])] if indices.ndim and first + indices.shape[-1] <= rank else []
    axis = attribute(node, "axis", 0)
    return [axis % rank] if -rank <= axis < rank else []


def _addressed(node: ShapedNode) -> Iterator[Demand]:
    """As many elements as constant indices need."""
    indices = node.values[1]
    if indices is not None and indices.size and (axes := addressed(node.node, indices, len(node.extents[0]))):
        for axis, column in zip(axes, indices.reshape(-1, len(axes)).T, strict=True):
            yield Fixed(0, axis, max(int(column.max()) + 1, -int(column.min())), at_least=True)


def _elements(node: ShapedNode) -> Iterator[Demand]:
    """Indices of elements, at most as many as there are along the other axes; an update for each of them."""
    rank = len(node.extents[0])
    axis = attribute(node.node, "axis", 0) % max(rank, 1)
    indices = " ".join(f"i{each}" if each == axis else f"i{each}&<a{each}" for each in range(rank))
    yield from _read_signature(f"{_axes('a', rank)}, {indices}, {_axes('i', rank)}", node.extents)
    yield from _addressed(node)


def _gathered_slices(node: ShapedNode) -> Iterator[Demand]:
    batches = attribute(node.node, "batch_dims", 0)
    yield from _read_signature(f"{_axes('a', batches)} ..., +", node.extents)
    yield from _addressed(node)


def _replaced_slices(node: ShapedNode) -> Iterator[Demand]:
    """An update for each index of a slice, which has the extents of the data that the index leaves."""
    rank, count = len(node.extents[0]), len(node.extents[1]) - 1
    depth = node.extents[1][-1] if node.extents[1] else None
    slices = " ".join(f"a{axis}" for axis in range(depth, rank)) if isinstance(depth, int) else _ANY
    indices = _axes("i", count)
    yield from _read_signature(f"{_axes('a', rank)}, {indices} _, {indices} {slices}", node.extents)
    yield from _addressed(node)


def _compressed(node: ShapedNode) -> Iterator[Demand]:
    axis, rank, condition = attribute(node.node, "axis", None), len(node.extents[0]), node.values[1]
    if axis is not None and rank and condition is not None and condition.any():
        yield Fixed(0, axis % rank, int(np.flatnonzero(condition)[-1]) + 1, at_least=True)


def _divided(node: ShapedNode) -> Iterator[Demand]:
    parts, rank = _numbers(node, "split"), len(node.extents[0])
    if parts and rank:
        yield Fixed(0, attribute(node.node, "axis", 0) % rank, sum(parts), reason=", the sum of the parts")


def _first(node: ShapedNode) -> Iterator[Demand]:
    count, rank = _numbers(node, "k"), len(node.extents[0])
    if count and rank:
        yield Fixed(0, attribute(node.node, "axis", -1) % rank, count[0], at_least=True)


def _extreme(node: ShapedNode) -> Iterator[Demand]:
    """An element, if the result is known to have the place of one."""
    extents = node.extents[0]
    along = attribute(node.node, "axis", 0) % max(len(extents), 1)
    if extents and all(isinstance(extent, int) and extent for extent in (*extents[:along], *extents[along + 1 :])):
        yield Fixed(0, along, 1, at_least=True)


def _reshaped(node: ShapedNode) -> Iterator[Demand]:
    """As many elements as the result; a multiple of those along its other axes if one extent is computed."""
    rank, result = len(node.extents[0]), node.result
    known = [extent for extent in result or () if isinstance(extent, int)]
    asked = node.values[1] if len(node.values) > 1 else np.array(attribute(node.node, "shape", []))
    if result is not None and len(known) == len(result):
        yield Counted(0, rank, math.prod(known))
    elif asked is not None and (asked == -1).any() and (asked != 0).all():
        yield Counted(0, rank, -math.prod(asked.tolist()), multiple=True)


def _squeezed(node: ShapedNode) -> Iterator[Demand]:
    axes, rank = _numbers(node, "axes"), len(node.extents[0])
    yield from (Fixed(0, axis % rank, 1) for axis in axes or () if rank)


def _columns(node: ShapedNode) -> Iterator[Demand]:
    """A column for each place of the blocks in the image, with the elements of a block of each channel."""
    sizes, block = node.values[1], node.values[2]
    if sizes is None or block is None or len(node.extents[0]) != 3:
        return
    rank = len(sizes)
    strides, dilations = (attribute(node.node, name, [1] * rank) for name in ("strides", "dilations"))
    pads = attribute(node.node, "pads", [0] * 2 * rank)
    places = [
        (int(sizes[d]) + pads[d] + pads[rank + d] - dilations[d] * (int(block[d]) - 1) - 1) // strides[d] + 1
        for d in range(rank)
    ]
    yield Fixed(0, 1, math.prod(block.tolist()), multiple=True)
    yield Fixed(0, 2, math.prod(places))


def _numbers(node: ShapedNode, name: str) -> list[int] | None:
    """The numbers that newer operator sets give as second input, older ones as an attribute; None for what is not
    constant."""
    given = node.values[1] if len(node.values) > 1 and node.node.input[1] else None
    numbers = attribute(node.node, name, None) if given is None else given.reshape(-1).tolist()
    return [numbers] if isinstance(numbers, int) else numbers


# -- the table ----------------------------------------------------------------------------------------


Row = str | Callable[[ShapedNode], "str | Iterable[Demand]"]
BROADCASTS = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
_OF_SAME_SHAPE = ("Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Not", "Relu", "Sigmoid", "Sqrt", "Tanh")
_INDEXED = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")
_RECURRENT = {"GRU": _recurrent(3), "LSTM": _recurrent(4), "RNN": _recurrent(1)}
_TABLE: dict[str, Row] = {
    **dict.fromkeys(BROADCASTS, "*a~, +"), **dict.fromkeys(_OF_SAME_SHAPE, _declared), **_RECURRENT,
    **dict.fromkeys(("ArgMax", "ArgMin"), _extreme), **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _linear),
    **dict.fromkeys(("LayerNormalization", "PRelu", "RMSNormalization"), "*a, *a?, +"),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), "n c *a, n *a, c"),
    **dict.fromkeys(("Scatter", "ScatterElements", "GatherElements"), _elements),
    "Attention": _attended,
    "BatchNormalization": "_ c ..., c, c, c, c",
    "Col2Im": _columns, "Compress": _compressed, "Concat": _joined,
    "Conv": "_ {group}c ..., f c ..., f",
    "ConvInteger": "_ {group}c ..., f c ..., 1, f?",
    "ConvTranspose": "_ c ..., c f ..., {group}f",
    "DeformConv": "_ {group}c ..., f c ..., ..., f",
    "Det": "... n n",
    "Einsum": _einsum, "Expand": _expanded, "Gather": _addressed, "GatherND": _gathered_slices, "Gemm": _gemm,
    "GridSample": "n _ >1 | n _ >1 >1 | n _ >1 >1 >1 | n ..., n _ 1 | n _ _ 2 | n _ _ _ 3 | n ...",
    "GroupNormalization": "_ c&%{num_groups} ..., c, c",
    "InstanceNormalization": "_ c ..., c, c",
    "MatMul": "*a~ _ k | k, *a~ k _ | k",
    "MatMulInteger": "... m k | k, ... k n | k, m?, n?",
    "OneHot": "..., ..., 2",
    "QLinearConv": "_ {group}c ..., 1, 1, f c ..., f?, f?, 1, 1, f",
    "QLinearMatMul": "... m k | k, m?, m?, ... k n | k, n?, n?, m?, m?",
    "Reshape": _reshaped,
    "ReverseSequence": lambda node: "_ b ..., b" if attribute(node.node, "batch_axis", 1) else "b ..., b",
    "RoiAlign": "_ _ >1 >1, r ..., r",
    "RotaryEmbedding": _rotated, "ScatterND": _replaced_slices,
    "Slice": "..., v, v, v, v",
    "Split": _divided, "Squeeze": _squeezed, "TensorScatter": _written,
    "Tile": lambda node: f"..., {len(node.extents[0])}",
    "TopK": _first,
}  # fmt: skip
_OLDER: dict[str, tuple[int, Row]] = {  # what operators demand in operator sets before a number
    "GroupNormalization": (21, "_ %{num_groups} ..., {num_groups}, {num_groups}"),
}
# Operators that become broadcasts, gathers or pads, which accept an extent of 1 or only a part of the elements, so that
# no later stage would detect a mismatch, and Concat, whose empty parts are left out.
REWRITTEN = frozenset({
    "Attention", "BatchNormalization", "Concat", "ConvInteger", "DequantizeLinear", "Det", "GridSample",
    "GroupNormalization", "InstanceNormalization", "MatMulInteger", "NegativeLogLikelihoodLoss", "OneHot",
    "QLinearConv", "QLinearMatMul", "QuantizeLinear", "RMSNormalization", "ReverseSequence", "RoiAlign",
    "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "TensorScatter", *_RECURRENT,
})  # fmt: skip
# Operators of which the wheel's lowering asserts nothing, or not all.
IN_TORCH = frozenset({
    "ArgMax", "ArgMin", "Einsum", "Reshape", "Slice", "Split", "TopK", *_INDEXED, *_OF_SAME_SHAPE, *_RECURRENT,
})  # fmt: skip


def demands_of(node: ShapedNode, version: int) -> Iterable[Demand]:
    """All that a node of operator set `version` demands of the extents of its inputs."""
    operator = node.node.op_type
    if operator not in _TABLE or node.node.domain not in ("", "ai.onnx"):
        return ()
    since, older = _OLDER.get(operator, (0, ""))
    row = older if version < since else _TABLE[operator]
    demands = row if isinstance(row, str) else row(node)
    if not isinstance(demands, str):
        return demands
    signature = re.sub(r"\{(\w+)\}", lambda name: str(attribute(node.node, name[1], 1)), demands)
    return _read_signature(signature, node.extents)
