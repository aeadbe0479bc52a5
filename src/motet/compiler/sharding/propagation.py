"""Finds the sharding of every tensor of a function from those that the program and its user give.

    %0 = linalg.matmul ins(%x [data][], %w [][model])   →   %0 [data][model]
    %1 = math.exp %0                                    →   %1 [data][model]

Operations are visited forwards and backwards until none changes. A factor of an operation (`rules/rule.py`) is divided
over the axes that most of its tensors' dimensions are; a dimension that has none yet takes them, if its extent is a
multiple and the tensor is not divided over one of them already. Given shardings are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.shardings import SHARD_OP, TO_GLOBAL, TO_LOCAL, DeviceMesh, TensorSharding, sharding_of
from motet.compiler.sharding.rules.listing import rule_of
from motet.compiler.sharding.rules.rule import Factors, ShardingRule, shape_of
from motet.errors import CompileError

MOST_ROUNDS = 32
Axes = tuple[str, ...]


@dataclass(frozen=True)
class GivenSharding:
    """A sharding that is kept. `name` is that of the tensor if the user asked for it, who gets an error where two
    such shardings cannot both be kept; programs' own are changed by collectives."""

    sharding: TensorSharding
    name: str = ""


@dataclass
class ShardedTensors:
    """The axes of each dimension of the tensors of a function; tensors of one device are not in it. `origins` are the
    names of the user's shardings that axes come from."""

    mesh: DeviceMesh
    given: Mapping[ir.Value, GivenSharding]
    rules: dict[ir.Operation, ShardingRule | None] = field(default_factory=dict[ir.Operation, ShardingRule | None])
    found: dict[ir.Value, list[Axes]] = field(default_factory=dict[ir.Value, list[Axes]])
    origins: dict[tuple[ir.Value, int], str] = field(default_factory=dict[tuple[ir.Value, int], str])

    def of(self, value: ir.Value) -> TensorSharding:
        return TensorSharding(tuple(self.found[value]))

    def begin(self, value: ir.Value) -> None:
        shape = shape_of(value)
        if shape is None or value in self.found:
            return
        given = self.given.get(value)
        self.found[value] = list(given.sharding.dimensions) if given else [()] * len(shape)
        if given and given.name:
            for place, axes in enumerate(given.sharding.dimensions):
                if axes:
                    self.origins[value, place] = f"{given.name} {given.sharding}"

    def give(self, value: ir.Value, place: int, axes: Axes, origin: str) -> bool:
        """Divide a dimension over axes, if it can be and is not yet; whether that changes something."""
        shape = shape_of(value)
        if shape is None or value in self.given or value not in self.found or not axes:
            return False
        dimensions = self.found[value]
        if dimensions[place] == axes or not _extends(axes, dimensions[place]):
            return False
        used = {name for other, names in enumerate(dimensions) if other != place for name in names}
        if used & set(axes) or shape[place] % self.mesh.size(axes):
            return False
        dimensions[place] = axes
        if origin:
            self.origins[value, place] = origin
        return True


def propagate(function: ir.Operation, mesh: DeviceMesh, given: Mapping[ir.Value, GivenSharding]) -> ShardedTensors:
    """The shardings of a function's tensors. Raises CompileError where two shardings of the user meet."""
    tensors = ShardedTensors(mesh, given)
    block = function.regions[0].blocks[0]
    operations = [entry.operation for entry in block.operations]
    for value in (*block.arguments, *(result for op in operations for result in op.results)):
        tensors.begin(value)
    local = local_values(operations)
    whole = [op for op in operations if not any(value in local for value in (*op.operands, *op.results))]
    for op in operations:
        if op.name == TO_GLOBAL:
            tensors.found[op.results[0]] = list(sharding_of(op).dimensions)
    for op in whole:
        tensors.rules[op] = rule_of(op)
    for _ in range(MOST_ROUNDS):
        forwards = [_visit(op, tensors) for op in whole]
        if not any([*forwards, *[_visit(op, tensors) for op in reversed(whole)]]):
            break
    return tensors


def local_values(operations: Iterable[ir.Operation]) -> set[ir.Value]:
    """The values that are those of one device: of `to_local`, and what is computed from them."""
    from motet.compiler.ir.find import captured_values
    from motet.compiler.ir.shardings import COLLECTIVES, DEVICE_INDEX

    found: set[ir.Value] = set()
    for op in operations:
        reads = captured_values(op) if len(op.regions) else op.operands
        if op.name in (TO_LOCAL, DEVICE_INDEX) or (
            op.name != TO_GLOBAL and (op.name in COLLECTIVES or any(value in found for value in reads))
        ):
            found.update(op.results)
    return found


def _visit(op: ir.Operation, tensors: ShardedTensors) -> bool:
    """Spread axes among the tensors of one operation; whether something changed."""
    if op.name == SHARD_OP:
        wanted = enumerate(tensors.found[op.results[0]])
        given = [tensors.give(op.operands[0], place, axes, "") for place, axes in wanted]
        return True in given
    rule = tensors.rules[op]
    if rule is None:
        return False
    changed = False
    tied = tied_dimensions(op, rule)
    for factor, axes, origin in _axes_of_factors(op, rule, tied, tensors):
        for value, place in tied[factor]:
            changed |= tensors.give(value, place, axes, origin)
    return changed


def tied_dimensions(op: ir.Operation, rule: ShardingRule) -> dict[int, list[tuple[ir.Value, int]]]:
    """The dimensions of tensors that belong to each factor: those of results last."""
    found: dict[int, list[tuple[ir.Value, int]]] = {}
    sides: list[tuple[ir.Value, Factors]] = [
        *zip(op.operands, rule.operands, strict=True), *rule.captured.items(),
        *zip(op.results, rule.results, strict=True),
    ]
    for value, factors in sides:
        for place, factor in enumerate(factors):
            if factor is not None:
                found.setdefault(factor, []).append((value, place))
    return found


def _axes_of_factors(
    op: ir.Operation, rule: ShardingRule, tied: Mapping[int, Sequence[tuple[ir.Value, int]]], tensors: ShardedTensors
) -> list[tuple[int, Axes, str]]:
    """The axes of each factor that has some, where they come from; each axis divides one factor."""
    found: list[tuple[int, Axes, str]] = []
    used: dict[str, tuple[int, str]] = {}
    for factor, places in tied.items():
        best: Axes = ()
        origin = ""
        for value, place in places:
            axes = tensors.found[value][place] if value in tensors.found else ()
            said = tensors.origins.get((value, place), "")
            differ = not _extends(axes, best) and not _extends(best, axes)
            if differ and said and origin not in ("", said):
                raise _conflict(op, origin, said)
            if _extends(axes, best) and axes != best:
                best, origin = axes, said or origin
        if not best or rule.extents[factor] % tensors.mesh.size(best):
            continue
        taken = next((used[name] for name in best if name in used), None)
        if taken is not None:
            if origin and taken[1] not in ("", origin) and factor not in rule.reduced and taken[0] not in rule.reduced:
                raise _conflict(op, taken[1], origin)
            continue
        used.update(dict.fromkeys(best, (factor, origin)))
        found.append((factor, best, origin))
    return found


def choose_factors(op: ir.Operation, rule: ShardingRule, tensors: ShardedTensors) -> dict[int, Axes]:
    """The axes that an operation's factors are divided over when it is computed: those of its results first, so that
    they are made as they are read, then those of its largest operands."""
    sides: list[tuple[ir.Value, Factors]] = list(zip(op.results, rule.results, strict=True))
    operands = [*zip(op.operands, rule.operands, strict=True), *rule.captured.items()]
    sides += sorted(operands, key=lambda side: -_elements(side[0]))
    chosen: dict[int, Axes] = {}
    used: set[str] = set()
    for value, factors in sides:
        for place, factor in enumerate(factors):
            axes = tensors.found[value][place] if value in tensors.found else ()
            if factor is None or factor in chosen or not axes or used & set(axes):
                continue
            if rule.extents[factor] % tensors.mesh.size(axes) == 0:
                chosen[factor] = axes
                used.update(axes)
    return chosen


def _elements(value: ir.Value) -> int:
    count = 1
    for extent in shape_of(value) or []:
        count *= extent
    return count


def _extends(axes: Axes, prefix: Axes) -> bool:
    return axes[: len(prefix)] == prefix


def _conflict(op: ir.Operation, first: str, second: str) -> CompileError:
    return CompileError(
        f"{op.name}: shardings conflict: {first} and {second} divide its dimensions differently; expected one "
        "sharding: change one of them, or shard only one of the two tensors",
        locate(op.location),
    )
