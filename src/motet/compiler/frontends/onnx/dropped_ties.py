"""What ONNX's operators demand of extents that their lowerings assert, for nodes that are not lowered because their
results are known without them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.broadcasts import BROADCASTS
from motet.compiler.frontends.onnx.model import DroppedNode, Extents
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.ties import Counted, Demand, Demands, Fixed, Tie, demands_of, present

if TYPE_CHECKING:
    import onnx


def _broadcast(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """All operands with each other."""
    yield from _met(extents, range(len(extents)), 0)


def _met(extents: Sequence[Extents], numbers: Iterable[int], last: int) -> Iterator[Tie]:
    """Operands that broadcast with each other, except along their `last` trailing axes."""
    for own, other in itertools.combinations([number for number in numbers if len(extents[number]) > last], 2):
        for back in range(last + 1, min(len(extents[own]), len(extents[other])) + 1):
            yield Tie(other, len(extents[other]) - back, own, len(extents[own]) - back, either=True)


def _followed(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Slopes, scales and offsets, which are broadcast to the first input."""
    for number in range(1, len(extents)):
        shift = len(extents[0]) - len(extents[number])
        yield from (Tie(number, axis, 0, axis + shift, stretches=True)
                    for axis in range(len(extents[number])) if shift >= 0)  # fmt: skip


def _product(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    left, right = len(extents[0]), len(extents[1])
    if left and right:
        yield Tie(1, max(right - 2, 0), 0, left - 1)
        yield from _met(extents, (0, 1), 2)


def _gemm(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """The third operand is broadcast to the product of the others."""
    rows, columns = attribute(node, "transA", 0) != 0, attribute(node, "transB", 0) == 0
    if len(extents[0]) != 2 or len(extents[1]) != 2:
        return
    yield Tie(1, 1 - columns, 0, 1 - rows)
    for number in present(node, [2]):
        place = len(extents[number])
        if place > 0:
            yield Tie(number, place - 1, 1, int(columns), stretches=True)
        if place > 1:
            yield Tie(number, place - 2, 0, int(rows), stretches=True)


def _einsum(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """The extents of each letter are equal, unless one is known to be 1; the axes of the ellipses broadcast."""
    terms = attribute(node, "equation", b"").decode().replace(" ", "").partition("->")[0].split(",")
    found: dict[str, tuple[int, int]] = {}
    others: list[tuple[int, range]] = []  # the axes of the ellipses
    for number, term in enumerate(terms[: len(extents)]):
        before, _, after = term.partition("...")
        rank = len(extents[number])
        others.append((number, range(len(before), rank - len(after)) if "..." in term else range(0)))
        for axis, letter in [*enumerate(before), *enumerate(after, rank - len(after))]:
            if 0 <= axis < rank and extents[number][axis] != 1:
                first = found.setdefault(letter, (number, axis))
                if first != (number, axis):
                    yield Tie(number, axis, *first)
    for (one, own), (other, axes) in itertools.combinations(others, 2):
        yield from (Tie(other, b, one, a, either=True) for a, b in zip(reversed(own), reversed(axes), strict=False))


def _parts(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    rank = len(extents[0])
    if rank and all(len(part) == rank for part in extents):
        axis = attribute(node, "axis", 1) % rank
        for number in range(1, len(extents)):
            yield from (Tie(number, each, 0, each) for each in range(rank) if each != axis)


def _picked(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """Indices of elements, at most as many as there are along the other axes."""
    rank = len(extents[0])
    if rank and len(extents[1]) == rank:
        axis = attribute(node, "axis", 0) % rank
        yield from (Tie(1, each, 0, each, at_most=True) for each in range(rank) if each != axis)


def _replaced(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """An update for each index of an element."""
    if len(extents[1]) == len(extents[2]):
        yield from (Tie(2, each, 1, each) for each in range(len(extents[1])))
        yield from _picked(node, extents)


def _picked_slices(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    batches = attribute(node, "batch_dims", 0)
    if batches <= min(len(extents[0]), len(extents[1])):
        yield from (Tie(1, each, 0, each) for each in range(batches))


def _replaced_slices(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """An update for each index of a slice, which has the extents of the data that the index leaves."""
    places = len(extents[1]) - 1
    depth = extents[1][-1] if extents[1] else None
    if isinstance(depth, int) and len(extents[2]) == places + len(extents[0]) - depth:
        yield from (Tie(2, each, 1, each) for each in range(places))
        yield from (Tie(2, each, 0, each - places + depth) for each in range(places, len(extents[2])))


def _convolved(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """As many channels as all groups of filters read, and an offset for each filter."""
    image, filters, offset = _CONVOLUTIONS[node.op_type]
    if min(len(extents[image]), len(extents[filters])) > 1:
        yield Tie(image, 1, filters, 1, times=attribute(node, "group", 1))
    yield from (Tie(number, 0, filters, 0) for number in present(node, [offset]) if len(extents[number]) == 1)


def _transposed(node: onnx.NodeProto, extents: Sequence[Extents]) -> Iterator[Tie]:
    """As many channels as filters, and an offset for each channel of the result."""
    if min(len(extents[0]), len(extents[1])) > 1:
        yield Tie(0, 1, 1, 0)
        yield from (
            Tie(number, 0, 1, 1, times=attribute(node, "group", 1))
            for number in present(node, [2]) if len(extents[number]) == 1
        )  # fmt: skip


_CONVOLUTIONS = {"Conv": (0, 1, 2), "ConvInteger": (0, 1, 4), "DeformConv": (0, 1, 3), "QLinearConv": (0, 3, 8)}
_LOWERED: dict[str, Demands] = {
    **dict.fromkeys(BROADCASTS, _broadcast), **dict.fromkeys(_CONVOLUTIONS, _convolved), "Concat": _parts,
    "ConvTranspose": _transposed, "Einsum": _einsum, "GatherElements": _picked, "GatherND": _picked_slices,
    "Gemm": _gemm, "LayerNormalization": _followed, "MatMul": _product, "PRelu": _followed,
    "Scatter": _replaced, "ScatterElements": _replaced, "ScatterND": _replaced_slices,
    "Where": _broadcast,
}  # fmt: skip


# -- demands that depend on the values of constants, or on the result ------------------------------


def _expanded(dropped: DroppedNode) -> Iterator[Demand]:
    result, rank = dropped.result or (), len(dropped.extents[0])
    for axis, extent in enumerate(result[len(result) - rank :] if len(result) >= rank else ()):
        if isinstance(extent, int):
            yield Fixed(0, axis, extent, stretches=True)


def _reshaped(dropped: DroppedNode) -> Iterator[Demand]:
    """As many elements as the result; a multiple of those along its other axes if one extent is computed."""
    rank, result = len(dropped.extents[0]), dropped.result
    known = [extent for extent in result or () if isinstance(extent, int)]
    asked = dropped.values[1] if len(dropped.values) > 1 else np.array(attribute(dropped.node, "shape", []))
    if result is not None and len(known) == len(result):
        yield Counted(0, rank, math.prod(known))
    elif asked is not None and (asked == -1).any() and (asked != 0).all():
        yield Counted(0, rank, -math.prod(asked.tolist()), multiple=True)


def _squeezed(dropped: DroppedNode) -> Iterator[Demand]:
    axes, rank = _numbers(dropped, "axes"), len(dropped.extents[0])
    yield from (Fixed(0, axis % rank, 1) for axis in axes or () if rank)


def _gathered(dropped: DroppedNode) -> Iterator[Demand]:
    """Along an axis, as many elements as the indices need."""
    rank, places = len(dropped.extents[0]), dropped.values[1]
    if rank and places is not None:
        yield from _addressed(places, attribute(dropped.node, "axis", 0) % rank)


def _gathered_slices(dropped: DroppedNode) -> Iterator[Demand]:
    places, first = dropped.values[1], attribute(dropped.node, "batch_dims", 0)
    for number in range(places.shape[-1] if places is not None and places.ndim else 0):
        if places is not None and first + number < len(dropped.extents[0]):
            yield from _addressed(places[..., number], first + number)


def _addressed(places: np.ndarray, axis: int) -> Iterator[Demand]:
    if places.size:
        yield Fixed(0, axis, max(int(places.max()) + 1, -int(places.min())), at_least=True)


def _compressed(dropped: DroppedNode) -> Iterator[Demand]:
    axis, rank, condition = attribute(dropped.node, "axis", None), len(dropped.extents[0]), dropped.values[1]
    if axis is not None and rank and condition is not None:
        yield from _addressed(np.flatnonzero(condition), axis % rank)


def _divided(dropped: DroppedNode) -> Iterator[Demand]:
    parts, rank = _numbers(dropped, "split"), len(dropped.extents[0])
    if parts and rank:
        yield Fixed(0, attribute(dropped.node, "axis", 0) % rank, sum(parts))


def _first(dropped: DroppedNode) -> Iterator[Demand]:
    count, rank = _numbers(dropped, "k"), len(dropped.extents[0])
    if count and rank:
        yield Fixed(0, attribute(dropped.node, "axis", -1) % rank, count[0], at_least=True)


def _columns(dropped: DroppedNode) -> Iterator[Demand]:
    """A column for each place of the blocks in the image, with the elements of a block of each channel."""
    sizes, block = dropped.values[1], dropped.values[2]
    if sizes is None or block is None or len(dropped.extents[0]) != 3:
        return
    rank = len(sizes)
    strides, dilations = (attribute(dropped.node, name, [1] * rank) for name in ("strides", "dilations"))
    pads = attribute(dropped.node, "pads", [0] * 2 * rank)
    places = [
        (int(sizes[d]) + pads[d] + pads[rank + d] - dilations[d] * (int(block[d]) - 1) - 1) // strides[d] + 1
        for d in range(rank)
    ]
    yield Fixed(0, 1, math.prod(block.tolist()), multiple=True)
    yield Fixed(0, 2, math.prod(places))


def _numbers(dropped: DroppedNode, name: str) -> list[int] | None:
    """The numbers that newer operator sets give as second input, older ones as an attribute; None for what is not
    constant."""
    given = dropped.values[1] if len(dropped.values) > 1 and dropped.node.input[1] else None
    found = attribute(dropped.node, name, None) if given is None else given.reshape(-1).tolist()
    return [found] if isinstance(found, int) else found


_OF_VALUES: dict[str, Callable[[DroppedNode], Iterable[Demand]]] = {
    "Col2Im": _columns, "Compress": _compressed, "Expand": _expanded, "GatherND": _gathered_slices,
    **dict.fromkeys(("Gather", "GatherElements", "Scatter", "ScatterElements"), _gathered), "Reshape": _reshaped,
    "ScatterND": _gathered_slices, "Split": _divided, "Squeeze": _squeezed, "TopK": _first,
}  # fmt: skip


def all_ties(dropped: DroppedNode, version: int) -> Iterator[Demand]:
    """All that a node demands whose operator will not be lowered."""
    node = dropped.node
    if node.domain not in ("", "ai.onnx"):
        return
    for rule in (demands_of(node, version), _LOWERED.get(node.op_type)):
        if rule is not None:
            yield from rule(node, dropped.extents)
    if node.op_type in _OF_VALUES:
        yield from _OF_VALUES[node.op_type](dropped)
