"""group: decides which operations form one kernel.

Operations are visited in program order. A contraction or convolution opens a group, which element-wise operations on
its result join. Row reductions, the element-wise operations that feed them, and their readers over the same rows form
one group; so do chains of element-wise operations, and stores of single elements into one tensor, as unrolled loops
have them. An operation does not join if two groups would then wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import captured_values
from motet.compiler.kernels.roles import (
    DENSE_ROLES,
    Role,
    Structure,
    is_unit_reshape,
    role_of,
    structure_of,
)
from motet.compiler.passes.fuse.marks import BESIDE, HELD, INTERLEAVED, JOINED, MARK, PLACES, TOGETHER
from motet.compiler.passes.fuse.partial_sorts import keeps_extents, numbers_places
from motet.compiler.passes.fuse.read_by_reductions import only_reductions_read, reductions_read
from motet.compiler.passes.fuse.rules import (
    JOINING,
    LARGEST_GROUP,
    POINTWISE,
    WRITTEN,
    Space,
    may_join,
    space_of,
    waits_for,
    written_space,
)
from motet.compiler.passes.fuse.stored_views import StoredViews
from motet.compiler.passes.normalise.store_scalar_results import is_stored_scalar

_MARKED = {MARK: Role.ATTENTION, JOINED: Role.CONTRACTION, INTERLEAVED: Role.MOVEMENT}


@dataclass(eq=False)
class Group:
    """Operations that become one kernel. `space` is their common iteration space; groups of later operations have
    greater numbers."""

    role: Role
    operations: list[ir.Operation]
    number: int = 0
    space: Space = field(default_factory=Space)
    depends: set[Group] = field(default_factory=set["Group"])


@dataclass
class Grouping:
    """The groups of one block, and for every operation its role and, for work, its group."""

    groups: list[Group]
    roles: dict[ir.Operation, Role]
    owner: dict[ir.Operation, Group]


def group_block(block: ir.Block, fuse_siblings: bool = True) -> Grouping:
    """Groups the operations of `block`, the only block of a public function. `fuse_siblings` groups convolutions that
    share their operand and have a common reader."""
    return _Grouper(block, fuse_siblings).run()


class _Grouper:
    def __init__(self, block: ir.Block, fuse_siblings: bool) -> None:
        self.fuse_siblings = fuse_siblings
        self.operations = [o.operation for o in block.operations][:-1]
        self.terminator = block.operations[len(block.operations) - 1].operation
        self.roles = {o: _role(o) for o in self.operations}
        self.views = StoredViews(self.roles, self.terminator)
        self.structures: dict[ir.Operation, Structure] = {}
        self.owner: dict[ir.Operation, Group] = {}
        self.groups: list[Group] = []
        self.marked: dict[tuple[str, int], Group] = {}

    def run(self) -> Grouping:
        for operation in self.operations:
            role = self.roles[operation]
            marks = [mark for mark in _MARKED if mark in operation.attributes]
            if marks:
                self._place_marked(operation, marks[0])
                continue
            if role in (Role.SCALAR, Role.ALIAS) or (role is Role.FREE and not self.views.leaves_kernels(operation)):
                continue
            if (role is Role.VIEW or PLACES in operation.attributes) and not self.views.needs_memory(operation):
                self.roles[operation] = Role.VIEW
                continue
            self._place(operation, role)
        self._merge_beside()
        return Grouping(self.groups, self.roles, self.owner)

    def _merge_beside(self) -> None:
        """Merges the groups that `join-small-groups` has marked."""
        hosts: dict[int, Group] = {}
        for operation in [o for o in self.operations if BESIDE in o.attributes]:
            group = self.owner[operation]
            host = hosts.setdefault(ir.IntegerAttr(operation.attributes[BESIDE]).value, group)
            if host is not group and (group.depends <= {host} or self._independent(host, group)):
                host.role = Role.REDUCTION if group.role is Role.REDUCTION else host.role
                self._merge(host, group)

    def _place_marked(self, operation: ir.Operation, mark: str) -> None:
        """Places operations with the same mark in one group. Only its last operation is read outside, so that the
        group is complete before a reader is placed."""
        key = mark, ir.IntegerAttr(operation.attributes[mark]).value
        if key not in self.marked:
            self.marked[key] = self._add(_MARKED[mark], [])
        group = self.marked[key]
        group.operations.append(operation)
        structure = structure_of(operation) if mark == JOINED else None
        if structure is not None:
            self.structures[operation] = structure
            group.space = written_space(structure)
        group.depends |= self._producers(operation) - {group}
        self.owner[operation] = group

    # -- placing one operation -------------------------------------------------------------------

    def _place(self, operation: ir.Operation, role: Role) -> None:
        structure = structure_of(operation) if operation.name == "linalg.generic" else None
        if structure is not None:
            self.structures[operation] = structure
        producers = self._producers(operation)
        stored = is_stored_scalar(operation) and operation.operands[0].owner.operation in self.owner
        if stored or self._cuts_sort(operation):
            group = self.owner[operation.operands[0].owner.operation]
            group.operations.append(operation)
            self.owner[operation] = group
            return
        if (chain := self._inserted_before(operation, producers)) is not None:
            chain.operations.append(operation)
            chain.depends |= producers - {chain}
            self.owner[operation] = chain
            return
        if TOGETHER in operation.attributes and (host := self._put_together(operation, producers)) is not None:
            host.role = Role.MOVEMENT
            host.operations.append(operation)
            self.owner[operation] = host
            return
        if structure is not None and (role in JOINING or role is Role.GATHER):
            siblings = self._siblings(operation, structure, producers)
            if siblings and not self.fuse_siblings:
                self._open(operation, role, structure, producers)
                return
            for other in siblings[1:]:
                self._merge(siblings[0], other)
            self._merge_chains(operation, structure, self._producers(operation))
            producers = self._producers(operation)
            others = self._over_same_rows(operation, role, structure, producers)
            last_first = sorted(producers, key=lambda group: (group.role is Role.GATHER, -group.number))
            for group in [*last_first, *others]:
                if self._may_join(group, operation, role, structure, producers):
                    self._join(group, operation, role, structure, producers)
                    return
        self._open(operation, role, structure, producers)

    def _inserted_before(self, operation: ir.Operation, producers: set[Group]) -> Group | None:
        """The group of the insertions of single elements that this one continues, as the only reader of the last but
        for elements that they read themselves, and without which it can be computed: stores of unrolled loops."""
        into = operation.operands[1].owner if operation.name == "tensor.insert" else None
        if into is None or isinstance(into, ir.Block) or into.operation.name != "tensor.insert":
            return None
        group = self.owner.get(into.operation)
        if group is None or len(group.operations) >= LARGEST_GROUP:
            return None
        others = [o for use in into.operation.results[0].uses if (o := use.owner.operation) != operation]
        if any(self.roles.get(o) is not Role.SCALAR or self._reader[o] != self._reader[operation] for o in others):
            return None
        return None if any(other is not group and self._reaches(other, group) for other in producers) else group

    @cached_property
    def _reader(self) -> dict[ir.Operation, int]:
        """What a scalar is computed for: the place of the operation that alone reads it, directly or through other
        scalars, or -1 if there are several; for any other operation its own place. The first insertion of a single
        element stands for all that continue it."""
        reader: dict[ir.Operation, int] = {}
        for place, operation in enumerate(self.operations):
            into = operation.operands[1].owner if operation.name == "tensor.insert" else operation
            reader[operation] = place if isinstance(into, ir.Block) else reader.get(into.operation, place)
        for operation in reversed(self.operations):
            if self.roles[operation] is Role.SCALAR:
                readers = {reader.get(use.owner.operation, -1) for each in operation.results for use in each.uses}
                reader[operation] = readers.pop() if len(readers) == 1 else -1
        return reader

    def _put_together(self, operation: ir.Operation, producers: set[Group]) -> Group | None:
        """One group of the producers of a concatenation's parts, if these have no other readers and each part has one
        producer."""
        parts = _in_order(producers)
        owners = {self._owner_of(operand) for operand in operation.operands}
        if owners != producers or any(
            group.role is not Role.ELEMENTWISE or not self._only_reader(group, operation) for group in parts
        ):
            return None
        if sum(len(group.operations) for group in parts) >= LARGEST_GROUP:
            return None
        if any(not self._independent(a, b) for a in parts for b in parts if a is not b):
            return None
        host, *others = parts
        for other in others:
            self._merge(host, other)
        return host

    def _owner_of(self, value: ir.Value) -> Group | None:
        return None if isinstance(value.owner, ir.Block) else self.owner.get(value.owner.operation)

    def _positions(self, operation: ir.Operation, producers: set[Group]) -> list[Group]:
        """The groups that only make positions for a sort to carry along: these need not be stored in memory."""
        if operation.name != "tm_tensor.sort":
            return []
        return [
            group for group in _in_order(producers)
            if not group.depends and len(group.operations) == 1
            and group.role is Role.ELEMENTWISE and self._only_reader(group, operation)
            and numbers_places(group.operations[0]) and group.operations[0].results[0] != operation.operands[0]
        ]

    def _cuts_sort(self, operation: ir.Operation) -> bool:
        """Whether this slices a known number of elements from the front of a sorted tensor: a partial sort suffices."""
        if operation.name != "tensor.extract_slice" or isinstance(operation.operands[0].owner, ir.Block):
            return False
        if any(ir.DenseI64ArrayAttr(operation.attributes["static_offsets"])):
            return False
        owner = operation.operands[0].owner.operation
        return owner.name == "tm_tensor.sort" and owner in self.owner and keeps_extents(operation, owner)

    def _open(
        self, operation: ir.Operation, role: Role, structure: Structure | None, producers: set[Group]
    ) -> None:
        """Opens a new group."""
        positions = self._positions(operation, producers)
        group = self._add(role, [*(one for other in positions for one in other.operations), operation])
        producers = producers - set(positions)
        for other in positions:
            self.groups.remove(other)
            self.owner.update(dict.fromkeys(other.operations, group))
        if structure is not None:
            group.space = written_space(structure) if role in WRITTEN else _space(operation, structure)
        group.depends = producers
        self.owner[operation] = group

    def _add(self, role: Role, operations: list[ir.Operation]) -> Group:
        self.groups.append(Group(role, operations, self.groups[-1].number + 1 if self.groups else 0))
        return self.groups[-1]

    def _producers(self, operation: ir.Operation) -> set[Group]:
        """The groups whose results `operation` reads, looking through operations that are not work."""
        return self._makers(captured_values(operation))

    def _makers(self, values: Iterable[ir.Value]) -> set[Group]:
        """The groups that make `values`, or what they are views of."""
        found: set[Group] = set()
        seen: set[ir.Operation] = set()
        stack = list(values)
        while stack:
            owner = stack.pop().owner
            if isinstance(owner, ir.Block):
                continue
            owner = owner.operation
            if owner in self.owner:
                found.add(self.owner[owner])
            elif owner in self.roles and owner not in seen:
                seen.add(owner)
                stack += captured_values(owner)
        return found

    def _may_join(
        self, group: Group, operation: ir.Operation, role: Role, structure: Structure, producers: set[Group]
    ) -> bool:
        if len(group.operations) >= LARGEST_GROUP or not self._reads_plainly(operation, structure, group):
            return False
        if any(other is not group and self._reaches(other, group) for other in producers):
            return False
        if role is Role.ELEMENTWISE and group.role in DENSE_ROLES and (
            only_reductions_read(operation, group.operations, self.roles)
        ):
            return False
        if self._leaves_reductions(role, [operation], group.role, group.operations):
            return False
        return may_join(
            role, _space(operation, structure), group.role, group.space, lambda: self._only_reader(group, operation)
        )

    def _join(
        self, group: Group, operation: ir.Operation, role: Role, structure: Structure, producers: set[Group]
    ) -> None:
        if role is Role.REDUCTION:
            group.role = Role.REDUCTION
            group.space = _space(operation, structure)
        elif role is Role.GATHER and group.role is Role.ELEMENTWISE:
            group.role = role
        group.operations.append(operation)
        group.depends |= producers - {group}
        self.owner[operation] = group

    def _reads_plainly(self, operation: ir.Operation, structure: Structure, group: Group) -> bool:
        """Whether every read of the group's values has dimensions in order: no slice, padding or transposition;
        broadcasts are allowed. No place in them is computed."""
        operands = list(operation.operands)
        if group in self._makers(value for value in captured_values(operation) if value not in operands):
            return False
        for operand, map_ in zip(operation.operands, structure.maps, strict=True):
            dims = [e.single for e in map_ if e.single is not None]
            while not isinstance(operand.owner, ir.Block):
                owner = operand.owner.operation
                role = self.roles.get(owner)
                if self.owner.get(owner) is group:
                    if dims != sorted(dims):
                        return False
                    break
                if role not in (Role.VIEW, Role.ALIAS) or owner in self.owner:
                    break
                if role is Role.ALIAS and is_unit_reshape(owner):
                    operand = owner.operands[0]
                    continue
                if owner.name != "linalg.generic":
                    if group in self._producers(owner):
                        return False
                    break
                inner = structure_of(owner)
                if inner is None:
                    break
                order = [e.single for e in inner.maps[0] if e.single is not None]
                if order != sorted(order):
                    dims = [1, 0]  # transposed
                operand = owner.operands[0]
        return True

    def _only_reader(self, group: Group, operation: ir.Operation) -> bool:
        results = [result for member in group.operations for result in member.results]
        users = {use.owner.operation for result in results for use in result.uses}
        return users <= {operation, *group.operations}

    def _leaves_reductions(
        self, role: Role, operations: Sequence[ir.Operation], other: Role, others: Sequence[ir.Operation]
    ) -> bool:
        """Whether reductions read element-wise operations, which they join unless these are together with gathers."""
        moved = operations if role is Role.ELEMENTWISE else others
        return {role, other} == {*POINTWISE} and reductions_read(moved, self.roles)

    def _reaches(self, later: Group, earlier: Group) -> bool:
        """Whether `later` depends on `earlier`, directly or indirectly."""
        return waits_for(later, earlier, lambda group: group.depends)

    def _independent(self, first: Group, other: Group) -> bool:
        return not self._reaches(other, first) and not self._reaches(first, other)

    def _merge(self, group: Group, other: Group) -> None:
        """Merges `other`, independent of `group` or only waiting for it, into it."""
        group.operations.extend(other.operations)
        group.depends |= other.depends - {group}
        for member in other.operations:
            self.owner[member] = group
        self.groups.remove(other)
        for reader in self.groups:
            if other in reader.depends:
                reader.depends = (reader.depends - {other}) | {group}

    # -- chains with a common reader -------------------------------------------------------------

    def _merge_chains(self, operation: ir.Operation, structure: Structure, producers: set[Group]) -> None:
        """Groups element-wise chains over one domain that have a common reader, together with the row reductions over
        that domain, or of one result for each of its points, that it reads: `f(x) * g(y)` is one pass, and f(x) is
        never stored."""
        extents = space_of(structure).extents
        meeting = [
            g for g in _in_order(producers)
            if self._reads_plainly(operation, structure, g) and (
                (g.role in POINTWISE and g.space.extents == extents)
                or (g.role is Role.REDUCTION and g.space.is_rows and extents in (g.space.extents, g.space.outer))
            )
        ]
        host = next((g for g in meeting if g.role is Role.REDUCTION), meeting[0] if meeting else None)
        for other in meeting:
            if (
                host is not None and other is not host
                and (other.role is Role.ELEMENTWISE or other.space == host.space
                     or (other.role is Role.GATHER and other.space.extents == host.space.outer))
                and not self._leaves_reductions(host.role, host.operations, other.role, other.operations)
                and len(host.operations) + len(other.operations) < LARGEST_GROUP
                and self._independent(host, other)
            ):
                host.role = other.role if host.role is Role.ELEMENTWISE else host.role
                self._merge(host, other)

    def _over_same_rows(
        self, operation: ir.Operation, role: Role, structure: Structure, producers: set[Group]
    ) -> list[Group]:
        """The groups that reduce the same rows of what a reduction reads, or of what is made together with it."""
        if role is not Role.REDUCTION or not (space := _space(operation, structure)).is_rows:
            return []
        read = {operand for operand in operation.operands if _is_stored(operand)}
        return [
            group for group in reversed(self.groups)
            if group.role is Role.REDUCTION and group.space == space and group not in producers
            and (producers & group.depends or any(read & set(each.operands) for each in group.operations))
        ]

    # -- sibling convolutions --------------------------------------------------------------------

    def _siblings(self, operation: ir.Operation, structure: Structure, producers: set[Group]) -> list[Group]:
        """Convolutions of one tensor and geometry with a common element-wise reader, if there are several. As one
        group they read the tensor once, and their results need not be stored."""
        siblings = [
            g for g in _in_order(producers)
            if g.role is Role.CONVOLUTION and g.space.extents == space_of(structure).extents
            and self._only_reader(g, operation)
        ]
        if len(siblings) < 2:
            return []
        found = siblings[:1]
        for other in siblings[1:]:
            if self._alike(found[0], other) and all(self._independent(each, other) for each in found):
                found.append(other)
        return found if len(found) > 1 else []

    def _alike(self, first: Group, other: Group) -> bool:
        a, b = first.operations[0], other.operations[0]
        return self.structures[a] == self.structures[b] and self._base(a.operands[0]) == self._base(b.operands[0])

    def _base(self, value: ir.Value) -> ir.Value:
        while not isinstance(value.owner, ir.Block) and self.roles.get(value.owner.operation) is Role.VIEW:
            value = value.owner.operation.operands[0]
        return value


def _in_order(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: group.number)


def _role(operation: ir.Operation) -> Role:
    role = role_of(operation)
    return Role.GATHER if role is Role.OPAQUE and HELD in operation.attributes else role


def _space(operation: ir.Operation, structure: Structure) -> Space:
    return space_of(structure, HELD in operation.attributes)


def _is_stored(value: ir.Value) -> bool:
    """Whether a tensor is an argument of the program."""
    return isinstance(value.owner, ir.Block) and isinstance(value.type, ir.RankedTensorType)
