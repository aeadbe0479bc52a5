"""Corrects inferred shapes of pools with ceil_mode. Before operator set 22 inference counts windows that begin in the
padding at the end; the specification and all runtimes drop these.

    MaxPool(x: 9x8; kernel 3x3, strides 2x3, pads 1, ceil_mode 1): 5x4  →  5x3
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.bodies import reads

if TYPE_CHECKING:
    import onnx

_POOLS = ("AveragePool", "LpPool", "MaxPool")


def drop_windows(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Declares in `graph` the corrected extents of the first pool whose inferred extents count windows that begin in
    the padding at the end, and drops the declarations of values that depend on it. Returns whether there was one."""
    infos = {info.name: info for info in (*inferred.input, *inferred.value_info, *inferred.output)}
    for node in graph.node:
        if node.op_type not in _POOLS or node.input[0] not in infos or node.output[0] not in infos:
            continue
        right = _without_windows(node, infos[node.input[0]], infos[node.output[0]])
        if right is None:
            continue
        later = set(node.output)
        for reader in graph.node:
            if later.intersection(reads(reader)):
                later.update(reader.output)
        kept = [info for info in graph.value_info if info.name not in later]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        outputs = [info for info in graph.output if info.name == node.output[0]]
        for info in outputs or [graph.value_info.add(name=node.output[0])]:
            info.CopyFrom(right)
        return True
    return False


def _without_windows(
    node: onnx.NodeProto, source: onnx.ValueInfoProto, result: onnx.ValueInfoProto
) -> onnx.ValueInfoProto | None:
    """`result` of a pool with ceil_mode without windows that begin past the image; None if nothing is to be
    corrected."""
    import onnx

    extents = source.type.tensor_type.shape.dim[2:]
    right = onnx.ValueInfoProto()
    right.CopyFrom(result)
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if not given.get("ceil_mode", 0) or given.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return None
    strides, pads = (given.get(name, [k] * 2 * len(extents)) for name, k in (("strides", 1), ("pads", 0)))
    for axis, (extent, windows) in enumerate(zip(extents, right.type.tensor_type.shape.dim[2:], strict=False)):
        known = extent.HasField("dim_value") and windows.HasField("dim_value")
        if known and (windows.dim_value - 1) * strides[axis] >= extent.dim_value + pads[axis]:
            windows.dim_value -= 1
    return None if right == result else right
