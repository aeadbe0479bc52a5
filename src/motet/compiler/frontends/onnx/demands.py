"""Asserts operators' requirements on dynamic extents before the operators are rewritten.

    BatchNormalization(x, s, …)   →   y = Where(Shape(x)[1] = Shape(s)[0], x, x), a node whose name has REQUIRE
                                      BatchNormalization(y, s, …)

Such operators become broadcasts, gathers or pads, which accept an extent of 1 or only a part of the elements, so that
no later stage would detect a mismatch. `broadcasts.py` converts the Where into an assertion. Static extents are
compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.extents import symbolic_shapes
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.simplify import attribute, infer_shapes, name_nodes, ranks, static_shapes
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, copy, element_types

if TYPE_CHECKING:
    import onnx

_WHERE_SINCE = 9  # the operator set


@dataclass(frozen=True)
class _Tie:
    """Axis `axis` of input `number` has the extent of axis `along` of input `of`, or one element for every `block` of
    its elements; or is 1, if it `stretches`."""

    number: int
    axis: int
    of: int
    along: int
    stretches: bool = False
    block: int = 1
    single: bool = False  # the extent is 1 instead

    def __str__(self) -> str:
        own, other = f"axis {self.axis} of input {self.number}", f"axis {self.along} of input {self.of}"
        if self.single:
            return f"{own} must be 1"
        if self.block > 1:
            return f"{own} must be the number of blocks of {self.block} along {other}"
        return f"{own} must be 1, or equal to {other}" if self.stretches else f"{own} and {other} must be equal"

    def fits(self, own: int, other: int) -> bool:
        if self.single:
            return own == 1
        return own == -(-other // self.block) or (self.stretches and own == 1)


_Extents = Sequence["int | str | None"]
_Demands = Callable[["onnx.NodeProto", Sequence[_Extents]], Iterable[_Tie]]


def demand_extents(model: OnnxModel) -> None:
    """Rewrites the main graph in place. Raises CompileError where static extents do not fit."""
    graph = model.proto.graph
    if model.opsets.get("", 0) < _WHERE_SINCE or not any(node.op_type in _RULES for node in graph.node):
        return
    name_nodes(model)
    infer_shapes(model)
    facts = ModelFacts(model, static_shapes(model), element_types(model), ranks(model))
    extents = symbolic_shapes(model)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rule is not None and all(name in extents for name in node.input if name):
            given = [extents.get(name, ()) for name in node.input]
            nodes += _asserted(node, facts, given, rule(node, given))
        else:
            nodes.append(node)
    copies = [copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _asserted(
    node: onnx.NodeProto, facts: ModelFacts, extents: Sequence[_Extents], ties: Iterable[_Tie]
) -> list[onnx.NodeProto]:
    """`node`, preceded by assertions of those `ties` that are not known to hold."""
    w, made = NodeWriter(node, facts, f"{node.name}/demand"), copy(node)
    n = Numbers(w)
    for tie in ties:
        own, other = extents[tie.number][tie.axis], extents[tie.of][tie.along]
        if isinstance(own, int) and isinstance(other, int) and not tie.fits(own, other):
            both = f"{own}" if tie.single else f"{own} and {other}"
            raise facts.model.error(f"node {node.name!r}: {node.op_type}: {tie}: {both}")
        same = own == other and own is not None and tie.block == 1
        if same or (own == 1 and tie.stretches) or (isinstance(own, int) and isinstance(other, int)):
            continue
        sizes = [w.add("Gather", w.add("Shape", node.input[number]), n.of(axis))
                 for number, axis in ((tie.number, tie.axis), (tie.of, tie.along))]  # fmt: skip
        if tie.block > 1:
            sizes[1] = w.add("Div", n.add(sizes[1], n.of(tie.block - 1)), n.of(tie.block))
        met = w.add("Equal", *sizes)
        if tie.stretches and not isinstance(own, int):
            met = w.add("Or", met, w.add("Equal", sizes[0], n.of(1)))
        made.input[0] = n.require(made.input[0], met, str(tie))
    return [*w.nodes, made]


# -- operators -------------------------------------------------------------------------------------


def _present(node: onnx.NodeProto, numbers: Iterable[int]) -> Iterator[int]:
    return (number for number in numbers if len(node.input) > number and node.input[number])


def _of_channels(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """Statistics, scales and offsets: one for each channel."""
    if len(extents[0]) > 1:
        yield from (_Tie(number, 0, 0, 1) for number in _present(node, range(1, 5)) if len(extents[number]) == 1)


def _group_normalization(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """GroupNormalization. Before operator set 21 scales and offsets are one for each group."""
    groups = attribute(node, "num_groups", 1)
    if any(extent != groups for number in (1, 2) for extent in extents[number]):
        yield from _of_channels(node, extents)


def _trailing(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A scale that is broadcast to the first input."""
    shift = len(extents[0]) - len(extents[1])
    yield from (_Tie(1, axis, 0, axis + shift, stretches=True) for axis in range(len(extents[1])) if shift >= 0)


def _linear(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A scale for the tensor, for each index along an axis, or for each block of indices; as many zero points."""
    rank, own, block = len(extents[0]), len(extents[1]), attribute(node, "block_size", 0)
    axis = attribute(node, "axis", 1)
    if not -rank <= axis < rank:
        return
    if own == 1 and not block:
        yield _Tie(1, 0, 0, axis % rank, stretches=True)
    elif own == rank and block:
        blocks = [block if each == axis % rank else 1 for each in range(rank)]
        yield from (_Tie(1, each, 0, each, block=blocks[each]) for each in range(rank))
    if len(extents) > 2 and len(extents[2]) == own:
        yield from (_Tie(2, each, 1, each) for each in range(own))


def _integer_product(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """Zero points for the tensor, for each row of the first matrix, for each column of the second one."""
    yield from _multiplied(extents, 0, 1)
    for zero, factor, back in ((2, 0, 2), (3, 1, 1)):
        for number in _present(node, [zero]):
            if len(extents[number]) == 1 and len(extents[factor]) >= back:
                yield _Tie(number, 0, factor, len(extents[factor]) - back, stretches=True)


def _integer_convolution(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A zero point of the image, and one of all filters or one for each of them."""
    yield from _for_filters(node, extents, ((3, 1),), (2,))


def _quantised_convolution(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """Scales and zero points of image and result, those of all filters or one for each of them, and its biases."""
    yield from _for_filters(node, extents, ((4, 3), (5, 3)), (1, 2, 6, 7))
    yield from (_Tie(number, 0, 3, 0) for number in _present(node, [8]) if len(extents[number]) == 1)


def _for_filters(
    node: onnx.NodeProto, extents: Sequence[_Extents], per_filter: Iterable[tuple[int, int]], single: Iterable[int]
) -> Iterator[_Tie]:
    """Numbers for each filter, pairs of their input and that of the filters, and numbers for a tensor."""
    for number, filters in per_filter:
        if len(node.input) > number and node.input[number] and len(extents[number]) == 1:
            yield _Tie(number, 0, filters, 0, stretches=True)
    for number in _present(node, single):
        yield from (_Tie(number, axis, number, axis, single=True) for axis in range(len(extents[number])))


def _multiplied(extents: Sequence[_Extents], left: int, right: int) -> Iterator[_Tie]:
    """The inner extents of two matrices, or stacks of them."""
    if min(len(extents[left]), len(extents[right])) >= 2:
        yield _Tie(right, len(extents[right]) - 2, left, len(extents[left]) - 1)


def _quantised_product(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """Scales and zero points for the tensor, for each row of the first matrix, for each column of the second one."""
    yield from _multiplied(extents, 0, 3)
    for number, factor, back in ((1, 0, 2), (2, 0, 2), (4, 3, 1), (5, 3, 1), (6, 0, 2), (7, 0, 2)):
        if len(extents[number]) == 1 and len(extents[factor]) >= back:
            yield _Tie(number, 0, factor, len(extents[factor]) - back, stretches=True)


def _loss(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A target for each row of scores, and a weight for each class."""
    if len(extents[1]) == len(extents[0]) - 1:
        yield from (_Tie(1, axis, 0, axis + (axis > 0)) for axis in range(len(extents[1])))
        yield from (_Tie(number, 0, 0, 1) for number in _present(node, [2]))


def _reversed(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    yield _Tie(1, 0, 0, attribute(node, "batch_axis", 1))


def _sampled(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    yield _Tie(1, 0, 0, 0)


def _recurrent(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A length and initial states for each sequence; a number for each unit and direction of a state."""
    batch = 0 if attribute(node, "layout", 0) else 1
    yield from (_Tie(number, 0, 0, batch) for number in _present(node, [4]) if len(extents[number]) == 1)
    for number in _present(node, [5, 6]):
        if len(extents[number]) == 3 and len(extents[2]) == 3:
            yield from (_Tie(number, batch, 0, batch), _Tie(number, 1 - batch, 2, 0), _Tie(number, 2, 2, 2))


def _regions(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    yield _Tie(2, 0, 1, 0)


def _written(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """An update has the extents of the cache, except along the axis where it is written."""
    rank = len(extents[0])
    axis = attribute(node, "axis", -2) % max(rank, 1)
    if len(extents[1]) == rank:
        yield from (_Tie(1, each, 0, each) for each in range(rank) if each != axis)
        yield from (_Tie(number, 0, 0, 0) for number in _present(node, [2]))


def _masked(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A mask is broadcast to batch, heads and queries; along the keys it may be shorter."""
    for number in _present(node, [3]):
        rank = len(extents[number])
        alike = [2, 1, 0] if len(extents[0]) == 4 else [1]
        yield from (
            _Tie(number, rank - 2 - back, 0, along, stretches=True) for back, along in enumerate(alike)
            if rank - 2 - back >= 0
        )


def _joined(node: onnx.NodeProto, extents: Sequence[_Extents]) -> Iterator[_Tie]:
    """A concatenation with an empty part, which is left out."""
    rank = len(extents[0])
    if not rank or any(len(part) != rank for part in extents):
        return
    axis = attribute(node, "axis", 1) % rank
    for number in range(1, len(extents)):
        if 0 in (extents[number][axis], extents[0][axis]):
            yield from (_Tie(number, each, 0, each) for each in range(rank) if each != axis)


_RULES: dict[str, _Demands] = {
    "Attention": _masked, "BatchNormalization": _of_channels, "Concat": _joined, "ConvInteger": _integer_convolution,
    "DequantizeLinear": _linear, "GRU": _recurrent, "GridSample": _sampled, "GroupNormalization": _group_normalization,
    "InstanceNormalization": _of_channels, "LSTM": _recurrent, "MatMulInteger": _integer_product,
    "NegativeLogLikelihoodLoss": _loss, "QLinearConv": _quantised_convolution, "QLinearMatMul": _quantised_product,
    "QuantizeLinear": _linear, "RMSNormalization": _trailing, "RNN": _recurrent,
    "ReverseSequence": _reversed, "RoiAlign": _regions, "SoftmaxCrossEntropyLoss": _loss, "TensorScatter": _written,
}  # fmt: skip
