"""What ONNX's operators demand of the extents of their inputs, as ties between two axes of one node, or of one axis:
those demands that no lowering asserts. `dropped_ties.py` has the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.model import Extents
from motet.compiler.frontends.onnx.simplify import attribute

if TYPE_CHECKING:
    import onnx

    from motet.compiler.frontends.onnx.numbers import Numbers

_OF_CHANNELS_SINCE = 21  # the operator set since which GroupNormalization has a scale for each channel


@dataclass(frozen=True)
class Tie:
    """Axis `axis` of input `number` has `times` the extent of axis `along` of input `of`, or one element for every
    `block` of its elements. It may also be 1 if it `stretches`; with `either`, the other one may be, too. Or it is
    `at_most` the other one."""

    number: int
    axis: int
    of: int
    along: int
    stretches: bool = False
    either: bool = False
    block: int = 1
    times: int = 1
    at_most: bool = False

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        """The inputs and axes whose extents matter."""
        return (self.number, self.axis), (self.of, self.along)

    def __str__(self) -> str:
        own, other = f"axis {self.axis} of input {self.number}", f"axis {self.along} of input {self.of}"
        if self.block > 1:
            return f"{own} must be the number of blocks of {self.block} along {other}"
        if self.times > 1:
            return f"{own} must be {self.times} times {other}"
        if self.at_most:
            return f"{own} must be at most {other}"
        if self.either:
            return f"{own} and {other} must be equal, or one of them 1"
        return f"{own} must be 1, or equal to {other}" if self.stretches else f"{own} and {other} must be equal"

    def fits(self, extents: Sequence[int]) -> bool:
        own, other = extents
        if self.at_most:
            return own <= other
        one = (own == 1 and (self.stretches or self.either)) or (other == 1 and self.either)
        return one or own == -(-other * self.times // self.block)

    def holds(self, extents: Extents) -> bool:
        """Whether extents that are not all known when compiling fit in every call."""
        own, other = extents
        if own is not None and own == other and self.block == self.times == 1:
            return True
        return (own == 1 and (self.stretches or self.either)) or (other == 1 and self.either)

    def met(self, n: Numbers, sizes: Sequence[str]) -> str:
        """The condition that extents which are values of the graph fit."""
        w, (own, other) = n.w, sizes
        if self.at_most:
            return n.less(own, n.add(other, n.of(1)))
        wanted = n.mul(other, n.of(self.times)) if self.times > 1 else other
        if self.block > 1:
            wanted = w.add("Div", n.add(wanted, n.of(self.block - 1)), n.of(self.block))
        met = w.add("Equal", own, wanted)
        may_be_one = ([own] if self.stretches or self.either else []) + ([other] if self.either else [])
        for size in (size for size in may_be_one if size not in w.facts.model.constants):
            met = w.add("Or", met, w.add("Equal", size, n.of(1)))
        return met


@dataclass(frozen=True)
class Fixed:
    """Axis `axis` of input `number` has the extent `count`, or a multiple of it, or is `at_least` that long. It may be
    1, too, if it `stretches`."""

    number: int
    axis: int
    count: int
    multiple: bool = False
    stretches: bool = False
    at_least: bool = False

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        return ((self.number, self.axis),)

    def __str__(self) -> str:
        wanted = f"a multiple of {self.count}" if self.multiple else str(self.count)
        before = "at least " if self.at_least else "1, or " if self.stretches and self.count != 1 else ""
        return f"axis {self.axis} of input {self.number} must be {before}{wanted}"

    def fits(self, extents: Sequence[int]) -> bool:
        if self.at_least:
            return extents[0] >= self.count
        one = self.stretches and extents[0] == 1
        return one or (extents[0] % self.count == 0 if self.multiple else extents[0] == self.count)

    def holds(self, extents: Extents) -> bool:
        return self.at_least and self.count <= 0

    def met(self, n: Numbers, sizes: Sequence[str]) -> str:
        if self.at_least:
            return n.less(n.of(self.count - 1), sizes[0])
        rest = n.w.add("Mod", sizes[0], n.of(self.count)) if self.multiple else sizes[0]
        met = n.w.add("Equal", rest, n.of(0 if self.multiple else self.count))
        return n.w.add("Or", met, n.w.add("Equal", sizes[0], n.of(1))) if self.stretches and self.count != 1 else met


@dataclass(frozen=True)
class Counted:
    """Input `number`, of rank `rank`, has `count` elements, or a multiple of it."""

    number: int
    rank: int
    count: int
    multiple: bool = False

    @property
    def places(self) -> Sequence[tuple[int, int]]:
        return [(self.number, axis) for axis in range(self.rank)]

    def __str__(self) -> str:
        return f"the elements of input {self.number} must be {'a multiple of ' if self.multiple else ''}{self.count}"

    def fits(self, extents: Sequence[int]) -> bool:
        return math.prod(extents) % self.count == 0 if self.multiple else math.prod(extents) == self.count

    def holds(self, extents: Extents) -> bool:
        return 0 in extents and (self.multiple or not self.count)

    def met(self, n: Numbers, sizes: Sequence[str]) -> str:
        count = n.w.joined("Mul", sizes) if sizes else n.of(1)
        rest = n.w.add("Mod", count, n.of(self.count)) if self.multiple else count
        return n.w.add("Equal", rest, n.of(0 if self.multiple else self.count))


Demand = Tie | Fixed | Counted
Demands = Callable[["onnx.NodeProto", Sequence[Extents]], Iterable[Demand]]


def present(node: onnx.NodeProto, numbers: Iterable[int]) -> Iterator[int]:
    return (number for number in numbers if len(node.input) > number and node.input[number])


def _of_channels(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Statistics, scales and offsets: one for each channel."""
    if len(extents[0]) > 1:
        yield from (Tie(number, 0, 0, 1) for number in present(node, range(1, 5)) if len(extents[number]) == 1)


def _in_groups(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """Groups of as many channels each; a scale and an offset for each channel."""
    yield from _of_channels(node, extents)
    yield from _whole_groups(node, extents)


def _of_groups(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """Groups of as many channels each; a scale and an offset for each group."""
    groups = attribute(node, "num_groups", 1)
    yield from (Fixed(number, 0, groups) for number in (1, 2) if len(extents[number]) == 1)
    yield from _whole_groups(node, extents)


def _whole_groups(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    if len(extents[0]) > 1 and (groups := attribute(node, "num_groups", 1)) > 0:
        yield Fixed(0, 1, groups, multiple=True)


def _trailing(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A scale that is broadcast to the first input."""
    shift = len(extents[0]) - len(extents[1])
    yield from (Tie(1, axis, 0, axis + shift, stretches=True) for axis in range(len(extents[1])) if shift >= 0)


def _linear(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A scale for the tensor, for each index along an axis, or for each block of indices; as many zero points."""
    rank, own, block = len(extents[0]), len(extents[1]), attribute(node, "block_size", 0)
    axis = attribute(node, "axis", 1)
    if not -rank <= axis < rank:
        return
    if own == 1 and not block:
        yield Tie(1, 0, 0, axis % rank, stretches=True)
    elif own == rank and block:
        blocks = [block if each == axis % rank else 1 for each in range(rank)]
        yield from (Tie(1, each, 0, each, block=blocks[each]) for each in range(rank))
    if len(extents) > 2 and len(extents[2]) == own:
        yield from (Tie(2, each, 1, each) for each in range(own))


def _integer_product(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Zero points for the tensor, for each row of the first matrix, for each column of the second one."""
    yield from _multiplied(extents, 0, 1)
    for zero, factor, back in ((2, 0, 2), (3, 1, 1)):
        for number in present(node, [zero]):
            if len(extents[number]) == 1 and len(extents[factor]) >= back:
                yield Tie(number, 0, factor, len(extents[factor]) - back, stretches=True)


def _integer_convolution(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """A zero point of the image, and one of all filters or one for each of them."""
    yield from _for_filters(node, extents, ((3, 1),), (2,))


def _quantised_convolution(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """Scales and zero points of image and result, those of all filters or one for each of them, and its biases."""
    yield from _for_filters(node, extents, ((4, 3), (5, 3)), (1, 2, 6, 7))
    yield from (Tie(number, 0, 3, 0) for number in present(node, [8]) if len(extents[number]) == 1)


def _for_filters(
    node: onnx.NodeProto, extents: Sequence[Extents], per_filter: Iterable[tuple[int, int]], single: Iterable[int]
) -> Iterator[Demand]:
    """Numbers for each filter, pairs of their input and that of the filters, and numbers for a tensor."""
    for number, filters in per_filter:
        if len(node.input) > number and node.input[number] and len(extents[number]) == 1:
            yield Tie(number, 0, filters, 0, stretches=True)
    for number in present(node, single):
        yield from (Fixed(number, axis, 1) for axis in range(len(extents[number])))


def _multiplied(extents: Sequence[Extents], left: int, right: int) -> Iterator[Tie]:
    """The inner extents of two matrices, or stacks of them."""
    if min(len(extents[left]), len(extents[right])) >= 2:
        yield Tie(right, len(extents[right]) - 2, left, len(extents[left]) - 1)


def _quantised_product(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Scales and zero points for the tensor, for each row of the first matrix, for each column of the second one."""
    yield from _multiplied(extents, 0, 3)
    for number, factor, back in ((1, 0, 2), (2, 0, 2), (4, 3, 1), (5, 3, 1), (6, 0, 2), (7, 0, 2)):
        if len(extents[number]) == 1 and len(extents[factor]) >= back:
            yield Tie(number, 0, factor, len(extents[factor]) - back, stretches=True)


def _loss(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A target for each row of scores, and a weight for each class."""
    if len(extents[1]) == len(extents[0]) - 1:
        yield from (Tie(1, axis, 0, axis + (axis > 0)) for axis in range(len(extents[1])))
        yield from (Tie(number, 0, 0, 1) for number in present(node, [2]))


def _reversed(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    yield Tie(1, 0, 0, attribute(node, "batch_axis", 1))


def _sampled(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """A grid for each image, of a coordinate for each of its axes."""
    yield Tie(1, 0, 0, 0)
    if len(extents[1]) == len(extents[0]):
        yield Fixed(1, len(extents[1]) - 1, len(extents[0]) - 2)


def _recurrent(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A length and initial states for each sequence; a number for each unit and direction of a state; for each unit
    the rows, offsets and peepholes of all gates."""
    batch, gates = 0 if attribute(node, "layout", 0) else 1, _GATES[node.op_type]
    if len(extents[0]) == len(extents[1]) == len(extents[2]) == 3:
        yield Tie(1, 2, 0, 2)
        rows = ((1, gates), (2, gates), (3, 2 * gates), (7, 3))
        for number, times in rows:
            if len(node.input) > number and node.input[number]:
                yield from (Tie(number, 1, 2, 2, times=times), Tie(number, 0, 2, 0))
    yield from (Tie(number, 0, 0, batch) for number in present(node, [4]) if len(extents[number]) == 1)
    for number in present(node, [5, 6]):
        if len(extents[number]) == 3 and len(extents[2]) == 3:
            yield from (Tie(number, batch, 0, batch), Tie(number, 1 - batch, 2, 0), Tie(number, 2, 2, 2))


def _regions(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    yield Tie(2, 0, 1, 0)


def _written(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """An update has the extents of the cache, except along the axis where it is written, which may be longer."""
    rank = len(extents[0])
    axis = attribute(node, "axis", -2) % max(rank, 1)
    if len(extents[1]) == rank:
        linear = attribute(node, "mode", b"linear") == b"linear"
        yield from (Tie(1, each, 0, each, at_most=each == axis) for each in range(rank) if linear or each != axis)
        yield from (Tie(number, 0, 0, 0) for number in present(node, [2]))


def _masked(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A mask is broadcast to batch, heads and queries; along the keys it may be shorter."""
    for number in present(node, [3]):
        rank = len(extents[number])
        alike = [2, 1, 0] if len(extents[0]) == 4 else [1]
        yield from (
            Tie(number, rank - 2 - back, 0, along, stretches=True) for back, along in enumerate(alike)
            if rank - 2 - back >= 0
        )


def _joined(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """A concatenation with an empty part, which is left out."""
    rank = len(extents[0])
    if not rank or any(len(part) != rank for part in extents):
        return
    axis = attribute(node, "axis", 1) % rank
    for number in range(1, len(extents)):
        if 0 in (extents[number][axis], extents[0][axis]):
            yield from (Tie(number, each, 0, each) for each in range(rank) if each != axis)


def _attended(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Queries, keys and values of the same batch, keys and values of the same heads and places."""
    ranks = {len(each) for each in extents[:3]}
    if ranks not in ({3}, {4}):
        return
    yield from (Tie(number, 0, 0, 0) for number in (1, 2))
    yield from (Tie(2, each, 1, each) for each in range(1, ranks.pop() - 1))
    if len(extents[0]) == 4:
        yield Tie(1, 3, 0, 3)
    elif (own := attribute(node, "kv_num_heads", 0)) and (heads := attribute(node, "q_num_heads", 0)) % own == 0:
        yield Tie(0, 2, 1, 2, times=heads // own)
    yield from _masked(node, extents)


def _square(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    if (rank := len(extents[0])) > 1:
        yield Tie(0, rank - 1, 0, rank - 2)


def _chosen(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """The numbers for places that are chosen, and for those that are not."""
    yield Fixed(2, 0, 2)


def _rotated(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Demand]:
    """Sines and cosines for each place of each sequence, and for the halves of what is rotated of each head."""
    along, heads = (2, 1) if len(extents[0]) == 4 else (1, attribute(node, "num_heads", 0))
    rotated, rank = attribute(node, "rotary_embedding_dim", 0), len(extents[1])
    for number in (1, 2):
        if len(node.input) < 4 and len(extents[number]) == 3:
            yield Tie(number, 0, 0, 0, stretches=True)
            yield Tie(number, 1, 0, along, stretches=True)
        if rotated:
            yield Fixed(number, rank - 1, rotated // 2)
        elif heads:
            yield Tie(0, len(extents[0]) - 1, number, rank - 1, times=2 * heads)


_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_ALWAYS: dict[str, Demands] = {
    "Attention": _attended, "BatchNormalization": _of_channels, "Concat": _joined, "ConvInteger": _integer_convolution,
    "DequantizeLinear": _linear, "Det": _square, "GRU": _recurrent, "GridSample": _sampled,
    "GroupNormalization": _in_groups, "InstanceNormalization": _of_channels, "LSTM": _recurrent,
    "MatMulInteger": _integer_product, "NegativeLogLikelihoodLoss": _loss, "OneHot": _chosen,
    "QLinearConv": _quantised_convolution, "QLinearMatMul": _quantised_product, "QuantizeLinear": _linear,
    "RMSNormalization": _trailing, "RNN": _recurrent, "ReverseSequence": _reversed, "RoiAlign": _regions,
    "RotaryEmbedding": _rotated, "SoftmaxCrossEntropyLoss": _loss, "TensorScatter": _written,
}  # fmt: skip


def demands_of(node: onnx.NodeProto, version: int) -> Demands | None:
    """What the lowering of `node` does not assert; None if that is nothing."""
    if node.domain not in ("", "ai.onnx"):
        return None
    old = node.op_type == "GroupNormalization" and version < _OF_CHANNELS_SINCE
    return _of_groups if old else _ALWAYS.get(node.op_type)
