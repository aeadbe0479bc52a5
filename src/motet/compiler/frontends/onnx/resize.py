"""Lowers Resize and Upsample: reads their attributes and what decides the extents into `compiler/operators/resize.py`.

    %y = torch.operator "onnx.Resize"(%x, %none, %scales) {torch.onnx.mode = "linear"}   →   linalg.generic …

Scales and sizes that a call gives must lead to the extents of the result, where these are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.operator_node import OperatorNode, Reader
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.tensors import TorchKind, builtin
from motet.compiler.frontends.onnx.torch_operands import assert_that, write
from motet.compiler.frontends.onnx.writing import ModelFacts, refused
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import as_index, constant_index, element_at, on_indices
from motet.compiler.operators.arithmetic import Floats
from motet.compiler.operators.pointwise import size_of
from motet.compiler.operators.resize import MODES, POSITIONS, ROUNDINGS, Filter, ResizedAxis, resize

if TYPE_CHECKING:
    import onnx

_CHOICES = {
    "mode": MODES, "coordinate_transformation_mode": POSITIONS, "nearest_mode": ROUNDINGS,
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}  # fmt: skip


def check_resize(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises ValueError for attributes and extents that ONNX does not allow, and CompileError for a filter as
    wide as a call says."""
    for name, known in _CHOICES.items():
        if (said := attribute(node, name, b"").decode()) and said not in known:
            raise ValueError(f"{name}={said}; expected {', '.join(known)}")
    before, after = (facts.extents(name) or [] for name in (node.input[0], node.output[0]))
    changes = list(zip(before, after, strict=False))
    named = attribute(node, "axes", list(range(len(before))))
    if before and len({axis % len(before) for axis in named}) < len(named):
        raise ValueError(f"axes={named}; expected each axis once")
    given = [facts.model.constants.get(name) for name in node.input[2:] if name]
    counts = [array.size for array in given if array is not None]
    if before and counts and len(counts) == len(given) and {*counts} - {0} != {len(named)}:
        raise ValueError(f"{max(counts)} scales or sizes; expected one for each of {len(named)} axes")
    if any(size == 0 and count for size, count in changes):
        raise ValueError(f"a tensor of extents {before} to {after}; expected elements")
    if len(changes) > 2:  # batches and channels stay
        changes = [changes[axis] for axis in named if axis % len(changes) > 1]
    scales = facts.model.constants.get(node.input[2]) if len(node.input) > 2 else None
    if attribute(node, "antialias", 0) and scales is None and any(None in each for each in changes or [(None, None)]):
        raise refused(node, facts, "with antialias to extents that only a call knows", "known extents or scales")


@dataclass(frozen=True)
class _GivenNumbers:
    """The numbers of an operand: constants, or a tensor of the call."""

    constants: np.ndarray | None
    tensor: ir.Value

    @staticmethod
    def of(value: ir.Value) -> _GivenNumbers:
        literal = not isinstance(value.owner, ir.Block) and value.owner.operation.name == "torch.vtensor.literal"
        held = np.array(ir.DenseElementsAttr(value.owner.operation.attributes["value"])) if literal else None
        return _GivenNumbers(None if held is None else held.reshape(-1), builtin(value))

    def __getitem__(self, place: int) -> float | ir.Value:
        """One of them: an integer of the call as an index, another number in f64."""
        if self.constants is not None:
            return self.constants[place].item()
        value = element_at(self.tensor, [constant_index(place)])
        return as_index(value) if isinstance(value.type, ir.IntegerType) else Floats(ir.F64Type.get()).wide(value)


@dataclass(frozen=True)
class _ResizeNode:
    node: OperatorNode
    source: ir.Value
    result: TorchKind

    @cached_property
    def f(self) -> Floats:
        return Floats(ir.F64Type.get())

    @property
    def is_legacy(self) -> bool:
        """Whether it is one of the operator sets up to 10, whose operands are the tensor and the scales."""
        return len(self.node.op.operands) == 2

    @cached_property
    def filter(self) -> Filter:
        positions, rounding = ("asymmetric", "floor") if self.is_legacy else ("half_pixel", "round_prefer_floor")
        return Filter(
            self.node.text("mode", "nearest"), self.node.text("coordinate_transformation_mode", positions),
            self.node.text("nearest_mode", rounding), self.node.number("cubic_coeff_a", -0.75),
            bool(self.node.number("antialias", 0)), bool(self.node.number("exclude_outside", 0)),
            self.node.number("extrapolation_value", 0.0), single=bool(self.node.number("motet.single", 0)),
        )  # fmt: skip

    def operand(self, place: int) -> _GivenNumbers | None:
        return _GivenNumbers.of(self.node.op.operands[place]) if self.node.has(place) else None

    def axes(self) -> list[ResizedAxis]:
        """The axes that change; what a call gives must leave batches and channels as they are."""
        rank = len(self.result.extents)
        named = [axis % rank for axis in self.node.integers("axes", range(rank))]
        region = None if self.is_legacy else self.operand(1)
        scales, sizes = (self.operand(1), None) if self.is_legacy else (self.operand(2), self.operand(3))
        cropped = self.filter.positions == "tf_crop_and_resize" and region is not None
        ratio = None if sizes is None else self._common_ratio(named, sizes)
        found: list[ResizedAxis] = []
        for place, axis in enumerate(named):
            ends = (region[place], region[place + len(named)]) if cropped and region is not None else (0.0, 1.0)
            one = self._by_scale(axis, scales[place], cropped) if scales is not None else (
                self._by_size(axis, 1 if sizes is None else sizes[place], ratio)
            )
            if cropped or not self._is_kept(one, rank):
                found.append(ResizedAxis(axis, one.size, one.count, one.scale, ends))
        return found

    def _size(self, axis: int) -> int | ir.Value:
        extent = ir.RankedTensorType(self.source.type).shape[axis]
        return size_of(self.source, axis) if extent == DYNAMIC else extent

    def _by_scale(self, axis: int, scale: float | ir.Value, cropped: bool) -> ResizedAxis:
        """Extents are the product in f32, rounded down."""
        size, count = self._size(axis), self.result.extents[axis]
        if count != DYNAMIC and (cropped or not isinstance(scale, ir.Value)):
            return ResizedAxis(axis, size, count, scale)
        if isinstance(scale, float) and scale.is_integer():
            counted = on_indices("arith.muli", size_of(self.source, axis), constant_index(int(scale)))
        else:
            product = create("arith.truncf", ir.F32Type.get(), [self.f.of(size) * self.f.of(scale)])
            counted = self.f.index(self.f.wide(product))
        return ResizedAxis(axis, size, self._agreed(axis, counted, "scales"), scale)

    def _by_size(self, axis: int, wanted: float | ir.Value, ratio: float | ir.Value | None) -> ResizedAxis:
        size = self._size(axis)
        if ratio is None:
            given = wanted if isinstance(wanted, ir.Value) else constant_index(int(wanted))
            return ResizedAxis(axis, size, self._agreed(axis, given, "sizes"))
        more = self.f.of(size) * self.f.of(ratio) + 0.5
        return ResizedAxis(axis, size, self._agreed(axis, self.f.index(more), "sizes"), ratio)

    def _agreed(self, axis: int, counted: ir.Value, by: str) -> int | ir.Value:
        """The extent of the result, with which what a call gives must agree."""
        count = self.result.extents[axis]
        if count == DYNAMIC:
            return counted
        extents = ", ".join("?" if extent == DYNAMIC else str(extent) for extent in self.result.extents)
        assert_that(write("==", counted, count), f"{by} must lead to extents {extents}")
        return count

    def _common_ratio(self, named: Sequence[int], sizes: _GivenNumbers) -> float | ir.Value | None:
        """The least or largest ratio of all axes; None if each has its own."""
        policy = self.node.text("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            return None
        extents = [self._size(axis) for axis in named]
        if sizes.constants is not None and all(isinstance(extent, int) for extent in extents):
            ratios = [size / extent for size, extent in zip(sizes.constants.tolist(), extents, strict=True)]
            return min(ratios) if policy == "not_larger" else max(ratios)
        chosen = self.f.least if policy == "not_larger" else self.f.most
        return reduce(chosen, [self.f.of(sizes[k]) / self.f.of(extent) for k, extent in enumerate(extents)])

    def _is_kept(self, one: ResizedAxis, rank: int) -> bool:
        """Whether an axis stays as it is; a batch or channels must, where a call decides."""
        if not isinstance(one.scale, ir.Value) and one.scale is not None:
            return one.scale == 1
        if one.is_known:
            return one.size == one.count
        if one.axis > 1 or rank < 3 or not (one.size == one.count or isinstance(one.size, ir.Value)):
            return False
        same = write("==", one.size, one.count)
        if isinstance(one.scale, ir.Value):
            same = self.f.of(one.scale) == 1
        assert_that(same, f"{'sizes' if one.scale is None else 'scales'} must keep the extents of the first two axes")
        return True


def _resize(node: OperatorNode) -> ir.Value:
    one = _ResizeNode(node, node.tensor(0), node.result)
    return resize(one.source, one.axes(), one.filter, unsigned=one.result.unsigned)


READERS: dict[str, Reader] = {"Resize": _resize, "Upsample": _resize}
