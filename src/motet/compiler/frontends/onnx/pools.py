"""Rewrites pools that the torch-mlir wheel lowers wrongly.

- AveragePool with ceil_mode: the wheel divides by a wrong count where a window extends past the padding. LpPool: the
  wheel ignores auto_pad and dilations, and scales such a window. Both become an average of full windows over a
  zero-padded image, scaled by the ratio of counts.
- GlobalLpPool: the wheel divides by the number of pixels, which may be 0, and multiplies by it; it becomes a reduction.
- Padded MaxPool: the wheel pads floats by the lowest finite number, which is larger than -infinity, and integers by 0;
  for unequal pads, it takes a dynamic extent for -1. Integers are converted to float32, which represents all 8-bit
  integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx import ordering
from motet.compiler.frontends.onnx.numbers import Numbers
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import Chain, ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx


@dataclass
class _Windows:
    """The windows of a pool over spatial axes of static extents: the padding before and after each axis that makes all
    windows full, and the number of elements of the image and its counted padding in each window."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    counts: np.ndarray


def pads_of(node: onnx.NodeProto, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """The padding before and after each axis of an image of `sizes`, as `pads` or `auto_pad` says."""
    rank = len(sizes)
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    pads, auto = list(attribute(node, "pads", [0] * 2 * rank)), attribute(node, "auto_pad", b"NOTSET")
    if auto == b"VALID":
        return [0] * rank, [0] * rank
    if auto not in (b"SAME_UPPER", b"SAME_LOWER"):
        return pads[:rank], pads[rank:]
    totals = [
        max(0, (-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size)
        for size, stride, length, dilation in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    halves, rest = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (halves, rest) if auto == b"SAME_UPPER" else (rest, halves)


def _windows(node: onnx.NodeProto, sizes: Sequence[int], padded: bool = True) -> _Windows:
    """The windows as specified for AveragePool (operator set 19); padding is counted if `padded`."""
    kernel = list(attribute(node, "kernel_shape", []))
    rank = len(kernel)
    strides, dilations = (list(attribute(node, name, [1] * rank)) for name in ("strides", "dilations"))
    ceil = bool(attribute(node, "ceil_mode", 0))
    before: list[int] = []
    after: list[int] = []
    counts = np.ones((), np.int64)
    pads = pads_of(node, sizes, kernel)
    for axis, size in enumerate(sizes):
        reach, stride = (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        low, high = (amounts[axis] for amounts in pads)
        free = size + low + high - reach
        outputs = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (outputs - 1) * stride >= size + low:
            outputs -= 1
        taps = np.arange(outputs)[:, None] * stride + np.arange(kernel[axis]) * dilations[axis]
        counted = taps < size + low + high if padded else (taps >= low) & (taps < size + low)
        counts = np.multiply.outer(counts, counted.sum(1))
        before.append(low)
        after.append(max(high, (outputs - 1) * stride + reach - size - low))
    return _Windows(kernel, strides, dilations, before, after, counts)


def _spatial(node: onnx.NodeProto, facts: ModelFacts) -> Sequence[int] | None:
    """The spatial extents, after batch and channels, if static."""
    extents = facts.extents(node.input[0])
    known = [extent for extent in (extents or [])[2:] if extent is not None]
    return None if extents is None or len(known) != len(extents[2:]) or node.input[0] not in facts.types else known


def _padding(node: onnx.NodeProto, facts: ModelFacts) -> tuple[list[int], list[int]] | None:
    """The padding before and after each spatial axis with which every window is full without ceil_mode; None if it
    depends on dynamic extents.

    With ceil_mode, a dynamic extent is padded by stride - 1 more; `_begun` removes windows that then begin past the
    image.
    """
    sizes = _spatial(node, facts)
    if sizes is not None:
        windows = _windows(node, sizes)
        return windows.before, windows.after
    if attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
        return None
    rank = len(attribute(node, "kernel_shape", []))
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    if not attribute(node, "ceil_mode", 0):
        return pads[:rank], pads[rank:]
    strides = attribute(node, "strides", [1] * rank)
    return pads[:rank], [high + stride - 1 for high, stride in zip(pads[rank:], strides, strict=True)]


def _begun(n: Numbers, value: str) -> str:
    """`value`, the results of all windows over a dynamic image padded for ceil_mode, without those that begin past it.

    The last window begins inside the image if the kernel is at least as large as the stride plus the padding at the
    end."""
    node, rank = n.node, len(attribute(n.node, "kernel_shape", []))
    strides, dilations = (attribute(node, name, [1] * rank) for name in ("strides", "dilations"))
    pads, kernel = attribute(node, "pads", [0] * 2 * rank), attribute(node, "kernel_shape", [])
    shape = n.add("Shape", node.input[0])
    for axis in range(rank):
        if strides[axis] + pads[rank + axis] > (kernel[axis] - 1) * dilations[axis] + 1:
            reached = n.plus(n.slice(shape, 0, axis + 2, axis + 3), n.of([pads[axis] + strides[axis] - 1]))
            count = n.add("Div", reached, n.of([strides[axis]]))
            value = n.add("Slice", value, n.of([0]), count, n.of([axis + 2]))
    return value


def _check_pool(node: onnx.NodeProto, facts: ModelFacts) -> None:
    """Raises CompileError for windows that depend on dynamic extents, which the wheel lowers wrongly."""
    if _spatial(node, facts) is not None or facts.extents(node.input[0]) is None:
        return
    if attribute(node, "auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        raise refused(node, facts, "with auto_pad over extents that only a call knows", "pads")
    pads = list(attribute(node, "pads", []))
    uneven = pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    if node.op_type == "MaxPool" and uneven and not _pads_itself(node, facts):
        raise refused(node, facts, "with pads that differ, over extents that only a call knows", "equal pads")


def _pads_itself(node: onnx.NodeProto, facts: ModelFacts) -> bool:
    """Whether MaxPool is written as a Pad and a MaxPool of full windows."""
    places = len([name for name in node.output if name]) > 1
    return not places and facts.version >= 11 and _padding(node, facts) is not None


def _average(chain: Chain, facts: ModelFacts, windows: _Windows) -> None:
    """The mean of every window over the zero-padded image."""
    pads = np.array([0, 0, *windows.before, 0, 0, *windows.after], np.int64)
    if pads.any():
        chain.then("Pad", facts.constant(chain.node, "pads", pads))
    more = {"dilations": windows.dilations} if any(d != 1 for d in windows.dilations) else {}
    chain.then("AveragePool", kernel_shape=windows.kernel, strides=windows.strides, **more)


def _average_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """AveragePool where the wheel counts wrongly: windows past the end, and dilated ones over counted padding."""
    sizes, padded = _spatial(node, facts), bool(attribute(node, "count_include_pad", 0))
    gaps = set(attribute(node, "dilations", [1])) != {1}
    if not (attribute(node, "ceil_mode", 0) or (gaps and padded)):
        return None
    if sizes is None:
        return _dynamic_average_pool(node, facts)
    windows = _windows(node, sizes, padded)
    chain, whole = Chain(node), math.prod(windows.kernel)
    _average(chain, facts, windows)
    if (windows.counts != whole).any():
        with np.errstate(divide="ignore"):  # the mean of an empty window is NaN: 0 · infinity
            factors = (whole / windows.counts).astype(facts.dtype(node.input[0]))
        chain.then("Mul", facts.constant(node, "factors", factors))
    return chain.done()


def _dynamic_average_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The mean of full windows over a zero-padded image, divided by that of an image of ones: the share of each window
    that counts."""
    padding = _padding(node, facts)
    if padding is None or facts.extents(node.input[0]) is None:
        return None
    w, kind = Numbers(node, facts), facts.dtype(node.input[0])
    kept = {name: attribute(node, name, []) for name in ("kernel_shape", "strides", "dilations")}
    rank = len(kept["kernel_shape"])

    def mean(image: str, before: Sequence[int], after: Sequence[int]) -> str:
        pads = np.array([0, 0, *before, 0, 0, *after], np.int64)
        image = w.add("Pad", image, w.constant(pads, "pads")) if pads.any() else image
        return w.add("AveragePool", image, **{name: given for name, given in kept.items() if given})

    spatial = w.slice(w.add("Shape", node.input[0]), 0, 2, rank + 2)
    shape = w.add("Concat", w.constant(np.ones(2, np.int64), "shape"), spatial, axis=0)
    ones, (before, after) = w.add("Expand", w.constant(np.ones((), kind), "one"), shape), padding
    if attribute(node, "count_include_pad", 0):
        counted = attribute(node, "pads", [0] * 2 * rank)
        pads = np.array([0, 0, *counted[:rank], 0, 0, *counted[rank:]], np.int64)
        ones = w.add("Pad", ones, w.constant(pads, "counted"), w.constant(np.ones((), kind), "one"))
        share = mean(ones, [0] * rank, np.subtract(after, counted[rank:]).tolist())
    else:
        share = mean(ones, before, after)
    return w.done([_begun(w, w.add("Div", mean(node.input[0], before, after), share))])


def _max_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    kind = facts.types.get(node.input[0])
    if kind is None or len([name for name in node.output if name]) > 1:
        return None
    padding = _padding(node, facts) if _pads_itself(node, facts) else None
    is_padded = padding is None or any((*padding[0], *padding[1]))
    chain, attributes = Chain(node), list(node.attribute)
    dtype = facts.dtype(node.input[0])
    if dtype.kind in "iu":
        if facts.rank(node.input[0]) == 4 and not is_padded:
            return ordering.RULES["MaxPool"](node, facts)
        chain.then("Cast", to=onnx.TensorProto.FLOAT)
        dtype = np.dtype(np.float32)
    elif padding is None or not is_padded:
        return None
    if padding is not None and is_padded:
        pads = np.array([0, 0, *padding[0], 0, 0, *padding[1]], np.int64)
        least = np.array(-np.inf, dtype)
        chain.then("Pad", facts.constant(node, "pads", pads), facts.constant(node, "least", least))
        attributes = [item for item in attributes if item.name in ("kernel_shape", "strides", "dilations")]
    chain.then("MaxPool")
    chain.nodes[-1].attribute.extend(attributes)
    chain = chain.then("Cast", to=kind) if chain.nodes[0].op_type == "Cast" else chain
    dynamic = _spatial(node, facts) is None and padding is not None and attribute(node, "ceil_mode", 0)
    return _only_begun(chain, facts) if dynamic else chain.done()


def _only_begun(chain: Chain, facts: ModelFacts) -> list[onnx.NodeProto]:
    w = Numbers(chain.node, facts)
    w.nodes = chain.nodes
    return w.done([_begun(w, chain.value)])


def _lp_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    sizes, ceil = _spatial(node, facts), bool(attribute(node, "ceil_mode", 0))
    explicit = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET"
    if sizes is None:
        return _ceiled_lp_pool(node, facts) if ceil else None
    if explicit and not ceil and set(attribute(node, "dilations", [1])) == {1}:
        return None
    windows, power, kind = _windows(node, sizes), attribute(node, "p", 2), facts.dtype(node.input[0])
    chain = Chain(node).then("Abs")
    if power != 1:
        chain.then("Pow", facts.constant(node, "power", np.array(power, kind)))
    _average(chain, facts, windows)
    chain.then("Mul", facts.constant(node, "count", np.array(math.prod(windows.kernel), kind)))
    if power != 1:
        chain.then("Pow", facts.constant(node, "root", np.array(1 / power, kind)))
    return chain.done()


def _ceiled_lp_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """LpPool with ceil_mode over dynamic extents: full windows over a zero-padded image; zeros add nothing."""
    padding = _padding(node, facts)
    if padding is None:
        return None
    pads = np.array([0, 0, *padding[0], 0, 0, *padding[1]], np.int64)
    chain = Chain(node).then("Pad", facts.constant(node, "pads", pads)).then("LpPool")
    kept = [item for item in node.attribute if item.name not in ("pads", "ceil_mode")]
    chain.nodes[-1].attribute.extend(kept)
    return _only_begun(chain, facts)


CHECKS: dict[str, Callable[[onnx.NodeProto, ModelFacts], None]] = dict.fromkeys(
    ("AveragePool", "LpPool", "MaxPool"), _check_pool
)
def _global_lp_pool(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """In float32 at least."""
    import onnx

    rank, power, kind = facts.rank(node.input[0]), attribute(node, "p", 2), facts.types.get(node.input[0])
    if rank is None or rank < 3 or kind is None:
        return None
    w, axes = NodeWriter(node, facts), list(range(2, rank))
    wide = max(kind, onnx.TensorProto.FLOAT, key=lambda each: onnx.helper.tensor_dtype_to_np_dtype(each).itemsize)
    value, dtype = w.cast(node.input[0], wide), onnx.helper.tensor_dtype_to_np_dtype(wide)
    if power in (1, 2):
        return w.done([w.cast(w.over(f"ReduceL{power}", value, axes, keepdims=1), kind)])
    powers = w.add("Pow", w.add("Abs", value), w.constant(np.array(power, dtype), "power"))
    sums = w.over("ReduceSum", powers, axes, keepdims=1)
    return w.done([w.cast(w.add("Pow", sums, w.constant(np.array(1 / power, dtype), "root")), kind)])


COMPOSED: dict[str, Rule] = {"GlobalLpPool": _global_lp_pool}
RULES: dict[str, Rule] = {"AveragePool": _average_pool, "LpPool": _lp_pool, "MaxPool": _max_pool}
