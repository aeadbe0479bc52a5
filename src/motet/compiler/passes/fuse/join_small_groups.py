"""join-small-groups: marks independent kernels that become one launch of a GPU, since none of them fills it.

    a step of an optimiser over 12 tensors      →      one launch, with programs for each of the 12

Only element-wise kernels and reductions along rows are joined, of known extents, that follow one another and wait for
equally many kernels in a row: none of those then waits for another, whichever are joined. A concatenation of their
results joins them. What is computed of constants alone stays separate, for `fold-constants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.program import parameters_of
from motet.compiler.kernels.roles import ALIASES, Role, is_unit_reshape
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.fold_constants import LARGEST_ALONE, LARGEST_GROWTH, LARGEST_SMALL
from motet.compiler.passes.fuse.group import Group, Grouping, group_block
from motet.compiler.passes.fuse.marks import BESIDE, TOGETHER

_POINTS = 1 << 20  # of a group: with more, its own programs fill a GPU
_TENSORS = 96  # of one launch, whose addresses are its arguments
_MOST = 32  # groups
_NEAR = 4  # groups between neighbours


@dataclass(frozen=True)
class JoinSmallGroups(FunctionPass):
    """Marks the first operation of each group by the number of its launch."""

    name = "join-small-groups"

    def run_on(self, function: ir.Operation) -> bool:
        found, parameters = False, set(parameters_of(function))
        for block in function.regions[0].blocks:
            for number, launch in enumerate(_launches(group_block(block), parameters)):
                found = True
                for group in launch.groups:
                    mark = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
                    group.operations[0].attributes[BESIDE] = mark
        return found


@dataclass
class _Neighbours:
    """Groups that become one, and the tensors that they read and write."""

    groups: list[Group] = field(default_factory=list[Group])
    tensors: set[ir.Value] = field(default_factory=set[ir.Value])


def _launches(grouping: Grouping, parameters: set[ir.Value]) -> list[_Neighbours]:
    """The launches of several groups."""
    position = {group: number for number, group in enumerate(grouping.groups)}
    level = _levels(grouping.groups, set())
    constant: set[Group] = set()
    for group in sorted(grouping.groups, key=lambda group: level[group]):
        if group.depends <= constant and _is_folded(group, _arguments(group, grouping), parameters):
            constant.add(group)
    level = _levels(grouping.groups, constant)
    open_launches: dict[int, _Neighbours] = {}
    made: list[_Neighbours] = []
    for group in grouping.groups:
        if group in constant or not (_is_computed(group) or (_concatenates(group) and group.depends <= constant)):
            continue
        if not _is_small(group):
            continue
        tensors = _tensors(group)
        launch = open_launches.get(level[group])
        if (
            launch is None or len(launch.groups) >= _MOST or len(launch.tensors | tensors) > _TENSORS
            or position[group] - position[launch.groups[-1]] > _NEAR
        ):
            launch = open_launches[level[group]] = _Neighbours()
            made.append(launch)
        launch.groups.append(group)
        launch.tensors |= tensors
    several = [launch for launch in made if len(launch.groups) > 1]
    for group in grouping.groups:
        waits = group.depends - constant
        launch = next((launch for launch in several if waits and waits <= set(launch.groups)), None)
        if launch is not None and _joins(group, launch, grouping):
            launch.groups.append(group)
    return several


def _levels(groups: list[Group], known: set[Group]) -> dict[Group, int]:
    """How many groups in a row each waits for, at most, without those that are `known`."""
    found: dict[Group, int] = {}
    for group in groups:
        todo = [group]
        while todo:
            current = todo[-1]
            waits = current.depends - known
            missing = [other for other in waits if other not in found]
            todo += missing
            if not missing:
                found[current] = 1 + max((found[other] for other in waits), default=-1)
                todo.pop()
    return found


def _read(operations: Sequence[ir.Operation], grouping: Grouping) -> set[ir.Value]:
    """What operations read, also by views: arguments of the function and results of groups."""
    found: set[ir.Value] = set()
    todo = [value for operation in operations for value in captured_values(operation)]
    while todo:
        value = todo.pop()
        if isinstance(value.owner, ir.Block) or value.owner.operation in grouping.owner:
            found.add(value)
        else:
            todo += captured_values(value.owner.operation)
    return found


def _arguments(group: Group, grouping: Grouping) -> set[ir.Value]:
    """The arguments of the function that a group reads."""
    return {value for value in _read(group.operations, grouping) if isinstance(value.owner, ir.Block)}


def _joins(group: Group, launch: _Neighbours, grouping: Grouping) -> bool:
    """Whether a group concatenates results of a launch, and computes nothing else of them."""
    made = [value.owner.operation for value in _read(group.operations[:-1], grouping)
            if not isinstance(value.owner, ir.Block)]
    return _concatenates(group) and not any(grouping.owner[each] in launch.groups for each in made)


def _is_folded(group: Group, arguments: set[ir.Value], parameters: set[ir.Value]) -> bool:
    """Whether `fold-constants` computes a group that depends on no other."""
    kinds = [ir.RankedTensorType(value.type) for operation in group.operations for value in operation.results
             if isinstance(value.type, ir.RankedTensorType)]
    read = sum(prod(ir.RankedTensorType(argument.type).shape) for argument in arguments & parameters)
    most = max(LARGEST_SMALL, LARGEST_GROWTH * read) if arguments else LARGEST_ALONE
    return arguments <= parameters and all(kind.has_static_shape and prod(kind.shape) <= most for kind in kinds)


def _is_computed(group: Group) -> bool:
    return group.role in (Role.ELEMENTWISE, Role.GATHER, Role.REDUCTION)


def _concatenates(group: Group) -> bool:
    """Whether a group concatenates tensors, which the launches that make them write to their places. They cannot if
    these have other shapes there."""
    last = group.operations[-1]
    return group.role is Role.MOVEMENT and TOGETHER in last.attributes and not any(map(_is_reshaped, last.operands))


def _is_reshaped(value: ir.Value) -> bool:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name not in ALIASES:
        return False
    reshape = value.owner.operation
    return not is_unit_reshape(reshape) or _is_reshaped(reshape.operands[0])


def _is_small(group: Group) -> bool:
    kinds = [
        ir.RankedTensorType(value.type) for operation in group.operations
        for value in (*operation.operands, *operation.results) if isinstance(value.type, ir.RankedTensorType)
    ]
    return all(kind.has_static_shape and prod(kind.shape) <= _POINTS for kind in kinds)


def _tensors(group: Group) -> set[ir.Value]:
    """What a group reads and writes, and what it keeps: no fewer than its kernel has arguments."""
    values = {value for operation in group.operations for value in captured_values(operation)}
    values |= {result for operation in group.operations for result in operation.results}
    own = set(group.operations)
    users = {value: {use.owner.operation for use in value.uses} for value in values}
    made = {value for value in values if not isinstance(value.owner, ir.Block) and value.owner.operation in own}
    return {value for value in values if value not in made or not users[value] <= own}
