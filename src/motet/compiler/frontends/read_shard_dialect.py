"""Reads upstream's dialect `shard` as Motet's meshes, shardings and collectives (`ir/shardings.py`).

    shard.grid @g(shape = 2x4)                                      →   module attributes {motet.mesh = "g0=2,g1=4"}
    %s = shard.sharding @g split_axes = [[0], [1]] : !shard.sharding
    %y = shard.shard %x to %s : tensor<4x8xf32>                     →   "motet.shard"(%x) {motet.sharding = "[g0][g1]"}
    shard.all_reduce %y on @g grid_axes = [1] reduction = max : …   →   "motet.all_reduce"(%y) {groups, reduction}

Axes of a grid are named by its name and their number.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.shardings import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    CONCAT,
    DEVICE_INDEX,
    DIMENSION,
    GROUPS,
    MESH,
    PERMUTE,
    REDUCE_SCATTER,
    REDUCTION,
    SHARD_OP,
    SHARDING,
    SPLIT,
    DeviceMesh,
    Groups,
    groups_attribute,
)
from motet.errors import CompileError

_REDUCTIONS = {"sum": "add", "product": "mul", "max": "max", "min": "min", "bitwise_and": "and", "bitwise_or": "or",
               "bitwise_xor": "xor"}


def read_shard_dialect(module: ir.Module) -> None:
    """Rewrites a module in place. Raises CompileError for several grids, and for what has no counterpart."""
    grids = [entry.operation for entry in module.body.operations if entry.operation.name == "shard.grid"]
    if not grids:
        return
    if len(grids) > 1:
        raise CompileError("shard.grid: there are several; expected one", locate(grids[1].location))
    name = ir.StringAttr(grids[0].attributes["sym_name"]).value
    shape = list(ir.DenseI64ArrayAttr(grids[0].attributes["shape"]))
    if any(size <= 0 for size in shape):
        raise CompileError(f"shard.grid @{name}: an axis of any size; expected a number", locate(grids[0].location))
    mesh = DeviceMesh(tuple((f"{name}{axis}", size) for axis, size in enumerate(shape)))
    module.operation.attributes[MESH] = ir.StringAttr.get(str(mesh))
    for op in find_operations(module, *_RULES):
        _RULES[op.name](op, mesh)
    left: list[ir.Operation] = []
    for op in find_operations(module, "shard.sharding"):
        if not list(op.results[0].uses):
            op.erase()
    grids[0].erase()
    module.operation.walk(lambda op: _note(op, left))
    if left:
        raise CompileError(f"{left[0].name}: not supported; expected one of {', '.join(_RULES)}",
                           locate(left[0].location))


def _note(op: ir.Operation, left: list[ir.Operation]) -> ir.WalkResult:
    if op.operation.name.startswith("shard."):
        left.append(op.operation)
    return ir.WalkResult.ADVANCE


def _axes(op: ir.Operation, mesh: DeviceMesh) -> list[str]:
    """The names of the axes that an operation is over: all of them if it lists none."""
    numbers = [int(number) for number in re.findall(r"\d+", str(op.attributes["grid_axes"]).partition(":")[2])] \
        if "grid_axes" in op.attributes else []
    for number in numbers:
        if number >= len(mesh.axes):
            raise CompileError(f"{op.name}: axis {number} of a grid of {len(mesh.axes)}", locate(op.location))
    return [mesh.names[number] for number in numbers] or mesh.names


def _number(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _given(op: ir.Operation, name: str) -> ir.Attribute:
    return _number(ir.IntegerAttr(op.attributes[name]).value)


def _reduction(op: ir.Operation) -> ir.Attribute:
    written = re.search(r"partial (\w+)", str(op.attributes["reduction"])) if "reduction" in op.attributes else None
    kind = written[1] if written else "sum"
    if kind not in _REDUCTIONS:
        raise CompileError(f"{op.name}: reduction {kind}; expected one of {', '.join(_REDUCTIONS)}",
                           locate(op.location))
    return ir.StringAttr.get(_REDUCTIONS[kind])


def _rewrite(op: ir.Operation, name: str, groups: Groups, attributes: dict[str, ir.Attribute]) -> None:
    made = ir.Operation.create(
        name, results=[op.results[0].type], operands=[op.operands[0]],
        attributes={GROUPS: groups_attribute(groups), **attributes}, loc=op.location, ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _all_reduce(op: ir.Operation, mesh: DeviceMesh) -> None:
    _rewrite(op, ALL_REDUCE, mesh.groups(_axes(op, mesh)), {REDUCTION: _reduction(op)})


def _all_gather(op: ir.Operation, mesh: DeviceMesh) -> None:
    _rewrite(op, ALL_GATHER, mesh.groups(_axes(op, mesh)), {DIMENSION: _given(op, "gather_axis")})


def _reduce_scatter(op: ir.Operation, mesh: DeviceMesh) -> None:
    attributes = {DIMENSION: _given(op, "scatter_dim"), REDUCTION: _reduction(op)}
    _rewrite(op, REDUCE_SCATTER, mesh.groups(_axes(op, mesh)), attributes)


def _all_to_all(op: ir.Operation, mesh: DeviceMesh) -> None:
    attributes = {SPLIT: _given(op, "split_axis"), CONCAT: _given(op, "concat_axis")}
    _rewrite(op, ALL_TO_ALL, mesh.groups(_axes(op, mesh)), attributes)


def _broadcast(op: ir.Operation, mesh: DeviceMesh) -> None:
    """The root, by its place along the axes, comes first in each group."""
    axes = _axes(op, mesh)
    root = list(ir.DenseI64ArrayAttr(op.attributes["root"]))
    if len(root) != len(axes) or len(list(op.operands)) > 1:
        raise CompileError(f"{op.name}: root {root} of axes {', '.join(axes)}; expected a number for each",
                           locate(op.location))
    place = 0
    sizes = dict(mesh.axes)
    for number, axis in zip(root, axes, strict=True):
        place = place * sizes[axis] + number
    groups = [[group[place], *(device for device in group if device != group[place])] for group in mesh.groups(axes)]
    _rewrite(op, BROADCAST, groups, {})


def _shift(op: ir.Operation, mesh: DeviceMesh) -> None:
    axis = mesh.names[ir.IntegerAttr(op.attributes["shift_axis"]).value]
    offset, rotate = ir.IntegerAttr(op.attributes["offset"]).value, "rotate" in op.attributes
    pairs: Groups = []
    for group in mesh.groups([axis]):
        for number, device in enumerate(group):
            target = number + offset
            if rotate:
                pairs.append([device, group[target % len(group)]])
            elif 0 <= target < len(group):
                pairs.append([device, group[target]])
    _rewrite(op, PERMUTE, pairs, {})


def _shard(op: ir.Operation, mesh: DeviceMesh) -> None:
    source = op.operands[1].owner
    if isinstance(source, ir.Block) or source.operation.name != "shard.sharding":
        raise CompileError("shard.shard: expected a sharding of shard.sharding", locate(op.location))
    text = str(source.operation.attributes["split_axes"])
    rank = len(ir.RankedTensorType(op.operands[0].type).shape)
    inner = text[text.index("[") + 1 : text.rindex("]")] if "[" in text else ""
    axes = [[mesh.names[int(number)] for number in re.findall(r"\d+", part)]
            for part in re.findall(r"\[([^\]]*)\]", inner)]
    axes += [[] for _ in range(rank - len(axes))]
    sharding = "".join(f"[{','.join(names)}]" for names in axes)
    made = ir.Operation.create(
        SHARD_OP, results=[op.results[0].type], operands=[op.operands[0]],
        attributes={SHARDING: ir.StringAttr.get(sharding)}, loc=op.location, ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _linear_index(op: ir.Operation, mesh: DeviceMesh) -> None:
    number = _device_number(op)
    op.results[0].replace_all_uses_with(number)
    op.erase()


def _multi_index(op: ir.Operation, mesh: DeviceMesh) -> None:
    numbers = [int(n) for n in re.findall(r"\d+", str(op.attributes["axes"]).partition(":")[2])] if (
        "axes" in op.attributes) else []
    index = ir.IndexType.get()
    for result, axis in zip(op.results, numbers or range(len(mesh.axes)), strict=True):
        value = _device_number(op)
        inner = mesh.size(mesh.names[axis + 1 :])
        for name, by in (("arith.divui", inner), ("arith.remui", mesh.axes[axis][1])):
            constant = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, by)},
                loc=op.location, ip=ir.InsertionPoint(op),
            )
            value = ir.Operation.create(
                name, results=[index], operands=[value, constant.result], loc=op.location, ip=ir.InsertionPoint(op)
            ).result
        result.replace_all_uses_with(value)
    op.erase()


def _device_number(op: ir.Operation) -> ir.Value:
    kind = ir.IntegerType.get_signless(32)
    at = ir.InsertionPoint(op)
    tensor = ir.Operation.create(
        DEVICE_INDEX, results=[ir.RankedTensorType.get([], kind)], operands=[], loc=op.location, ip=at
    )
    number = ir.Operation.create(
        "tensor.extract", results=[kind], operands=[tensor.result], loc=op.location, ip=ir.InsertionPoint(op)
    )
    return ir.Operation.create(
        "arith.index_cast", results=[ir.IndexType.get()], operands=[number.result], loc=op.location,
        ip=ir.InsertionPoint(op),
    ).result


_RULES: dict[str, Callable[[ir.Operation, DeviceMesh], None]] = {
    "shard.all_reduce": _all_reduce, "shard.all_gather": _all_gather, "shard.reduce_scatter": _reduce_scatter,
    "shard.all_to_all": _all_to_all, "shard.broadcast": _broadcast, "shard.shift": _shift, "shard.shard": _shard,
    "shard.process_linear_index": _linear_index, "shard.process_multi_index": _multi_index,
}
