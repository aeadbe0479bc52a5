"""merge-groups: merges groups of few channels of a convolution, with zero filters between the original groups.

    32 groups of 8 channels and 8 filters      →      4 groups of 64 channels and 64 filters

Tensor cores process a minimum number of channels in any case, so that the added products with zeros are free, while
pixels are read in full lines, and once. For GPUs only, where filters are constants and the grouping is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import recreate
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.kernels.roles import Role, role_of, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.normalise.hoist_constants import add_parameter, fresh_key

_CHANNELS = 64  # of a merged group, at most
_SHORT = ("f16", "bf16")  # types in which the added products are free
_LEAST = 2  # channels of a group; depthwise convolutions have their own kernels


@dataclass(frozen=True)
class MergeGroups(Pass):
    """Adds the merged filters to the program's parameters."""

    name = "merge-groups"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            for block in function.regions[0].blocks:
                merged = [_merge(program, each.operation) for each in list(block.operations)]
                if any(merged):
                    found = True
                    erase_unused(function)
        return found


@dataclass(frozen=True)
class _Groups:
    """A convolution in groups: of each operand the axis of groups, which the one that is merged with it follows, and
    how many groups become one."""

    image: int
    filters: int
    axes: tuple[int, int, int]
    together: int


def _merge(program: Program, operation: ir.Operation) -> bool:
    found = _match(operation) if operation.name == "linalg.generic" else None
    if found is None:
        return False
    users = _users(operation)
    chain: list[ir.Operation] = []
    last = operation
    while len(users) == 1 and users[0].name == "linalg.generic" and _takes(users[0], last, found):
        last = users[0]
        chain.append(last)
        users = _users(last)
    if len(users) != 1 or users[0].name != "tensor.collapse_shape":
        return False
    collapse, at = users[0], ir.InsertionPoint(operation)
    with operation.location:
        operands = list(operation.operands)
        operands[found.image] = _regrouped(operands[found.image], found.axes[found.image], found, at)
        operands[found.filters] = _widened(program, operands[found.filters], operation, found)
        operands[2] = _regrouped(operands[2], found.axes[2], found, at)
        value = recreate(operation, operands, at=at)
    for each in chain:
        with each.location:
            at = ir.InsertionPoint(each)
            own = [value if operand == operation.results[0] else operand for operand in each.operands]
            own = [
                operand if operand == value else _regrouped(operand, axis, found, at)
                for operand, axis in zip(own, _group_axes(each, found), strict=True)
            ]
            value = recreate(each, own, at=at)
            operation = each
    collapse.operands[0] = value
    return True


def _users(operation: ir.Operation) -> list[ir.Operation]:
    return [use.owner.operation for use in operation.results[0].uses]


def _shape(value: ir.Value) -> list[int]:
    kind = ir.RankedTensorType(value.type)
    return list(kind.shape) if kind.has_static_shape else []


# -- matching --------------------------------------------------------------------------------------


def _match(operation: ir.Operation) -> _Groups | None:
    structure = structure_of(operation) if role_of(operation) is Role.CONVOLUTION else None
    if structure is None or not all(_shape(operand) for operand in operation.operands):
        return None
    if any(str(ir.RankedTensorType(operand.type).element_type) not in _SHORT for operand in operation.operands[:2]):
        return None
    dims = [{d for entry in map_ for d in entry.dims} for map_ in structure.maps]
    shared = sorted(dims[0] & dims[1] & dims[2])
    if len(shared) != 1:
        return None
    group = shared[0]
    image = next((number for number in (0, 1) if any(
        len(entry.terms) > 1 for entry in structure.maps[number]
    )), None)
    if image is None or not _is_constant(operation.operands[1 - image]):
        return None
    axes = [next(a for a, entry in enumerate(map_) if entry.single == group) for map_ in structure.maps]
    widths: list[int] = []
    for number, (map_, axis) in enumerate(zip(structure.maps, axes, strict=True)):
        if axis + 1 >= len(map_) or map_[axis + 1].single is None:
            return None
        widths.append(_shape(operation.operands[number])[axis + 1])
    channel = structure.maps[image][axes[image] + 1].single
    one = structure.maps[2][axes[2] + 1].single
    own = [entry.single for entry in structure.maps[1 - image]]
    if channel not in structure.reduced or channel not in own or own[axes[1 - image] + 1] != one:
        return None
    count = _shape(operation.operands[2])[axes[2]]
    most = min(_CHANNELS // max(widths[image], 1), count)
    together = max((each for each in range(1, most + 1) if count % each == 0), default=1)
    if widths[image] < _LEAST or together < 2:
        return None
    return _Groups(image, 1 - image, (axes[0], axes[1], axes[2]), together)


def _is_constant(value: ir.Value) -> bool:
    """Whether a tensor is a parameter of the program, possibly reshaped."""
    return _parameter(value)[1] != ""


def _parameter(value: ir.Value) -> tuple[ir.Value, str]:
    """The argument that a tensor is, possibly reshaped, and its parameter name; an empty name for other tensors."""
    while not isinstance(value.owner, ir.Block):
        owner = value.owner.operation
        if owner.name not in ("tensor.expand_shape", "tensor.collapse_shape"):
            return value, ""
        value = owner.operands[0]
    function = value.owner.owner
    if "arg_attrs" not in function.attributes:
        return value, ""
    attributes = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
    return value, ir.StringAttr(attributes[PARAMETER]).value if PARAMETER in attributes else ""


def _takes(user: ir.Operation, before: ir.Operation, found: _Groups) -> bool:
    """Whether `user` is element-wise on the result of `before`, with other operands that have both the group and the
    filter axes, or neither."""
    structure = structure_of(user)
    if structure is None or structure.reduced or len(user.results) != 1:
        return False
    names = {each.operation.name for each in user.regions[0].blocks[0].operations}
    rank = len(structure.sizes)
    if names & {"linalg.index", "tensor.extract"} or not all(
        entry.single is not None for map_ in structure.maps for entry in map_
    ):
        return False
    for operand, map_ in zip(user.operands, structure.maps, strict=True):
        dims = [entry.single for entry in map_]
        if operand == before.results[0] and dims != list(range(rank)):
            return False
        both = [found.axes[2], found.axes[2] + 1]
        if set(both) & set(dims) and (both[0] not in dims or dims[dims.index(both[0]) :][:2] != both):
            return False
    return [entry.single for entry in structure.maps[-1]] == list(range(rank))


def _group_axes(user: ir.Operation, found: _Groups) -> list[int | None]:
    """The axis of groups of every operand of an element-wise operation; None if it has none."""
    structure = structure_of(user)
    assert structure is not None
    axes: list[int | None] = []
    for map_ in structure.maps:
        dims = [entry.single for entry in map_]
        axes.append(dims.index(found.axes[2]) if found.axes[2] in dims else None)
    return axes


# -- rewriting -------------------------------------------------------------------------------------


def _regrouped(value: ir.Value, axis: int | None, found: _Groups, at: ir.InsertionPoint) -> ir.Value:
    """`value` with its groups, along `axis`, and the following axis regrouped; its producers are rewritten."""
    if axis is None:
        return value
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    kind = ir.RankedTensorType(value.type)
    shape = list(kind.shape)
    new = [*shape[:axis], shape[axis] // found.together, shape[axis + 1] * found.together, *shape[axis + 2 :]]
    result = ir.RankedTensorType.get(new, kind.element_type)
    if owner is not None and owner.name == "tensor.empty":
        return ir.Operation.create("tensor.empty", results=[result], ip=at).result
    if owner is not None and owner.name == "tensor.pad" and len(owner.operands) == 1:
        inner = _regrouped(owner.operands[0], axis, found, at)
        made = ir.Operation.create(
            "tensor.pad", results=[result], operands=[inner],
            attributes={name: owner.attributes[name] for name in ("static_low", "static_high", "operandSegmentSizes")},
            regions=1, ip=at,
        )
        copy = owner.clone(at).operation
        copy.regions[0].blocks[0].append_to(made.regions[0])
        copy.erase()
        return made.result
    if owner is not None and owner.name == "linalg.generic":
        structure = structure_of(owner)
        if structure is not None and not structure.reduced and axis == found.axes[2]:
            axes = _group_axes(owner, found)
            operands = [
                operand if not isinstance(operand.type, ir.RankedTensorType) else _regrouped(operand, own, found, at)
                for operand, own in zip(owner.operands, axes, strict=True)
            ]
            return recreate(owner, operands, at=at)
    groups = [[a] for a in range(axis)] + [[axis, axis + 1]] + [[a] for a in range(axis + 2, len(shape))]
    flat = [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
    reassociation = ir.Attribute.parse(str(groups))
    collapsed = ir.Operation.create(
        "tensor.collapse_shape", results=[ir.RankedTensorType.get(flat, kind.element_type)], operands=[value],
        attributes={"reassociation": _numbered(groups)}, ip=at,
    ).result
    return ir.Operation.create(
        "tensor.expand_shape", results=[result], operands=[collapsed],
        attributes={"reassociation": reassociation, "static_output_shape": ir.DenseI64ArrayAttr.get(new)}, ip=at,
    ).result


def _numbered(groups: list[list[int]]) -> ir.Attribute:
    return ir.Attribute.parse(str(groups))


def _widened(program: Program, filters: ir.Value, operation: ir.Operation, found: _Groups) -> ir.Value:
    """Filters over the channels of all merged groups, zero for those of other groups, as a new parameter."""
    structure = structure_of(operation)
    assert structure is not None
    axis = found.axes[found.filters]
    channel = structure.maps[found.image][found.axes[found.image] + 1].single
    across = next(a for a, entry in enumerate(structure.maps[found.filters]) if entry.single == channel)
    argument, key = _parameter(filters)
    array = program.parameters[key].reshape(_shape(filters))
    count, width, channels = (array.shape[a] for a in (axis, axis + 1, across))
    parts = np.moveaxis(array, (axis, axis + 1, across), (0, 1, 2))
    sides = count // found.together, found.together * width, found.together * channels
    wide = np.zeros((*sides, *parts.shape[3:]), array.dtype)
    for group in range(count):
        outer, inner = divmod(group, found.together)
        rows, columns = slice(inner * width, (inner + 1) * width), slice(inner * channels, (inner + 1) * channels)
        wide[outer, rows, columns] = parts[group]
    made = np.ascontiguousarray(np.moveaxis(wide, (0, 1, 2), (axis, axis + 1, across)))
    name = fresh_key(f"{key}.merged", program.parameters)
    program.parameters = {**program.parameters, name: made}
    kind = ir.RankedTensorType.get(made.shape, ir.RankedTensorType(filters.type).element_type)
    return add_parameter(argument.owner.owner, kind, name, operation.location)
