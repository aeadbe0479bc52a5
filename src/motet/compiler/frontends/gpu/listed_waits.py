"""Lists the waits of asynchronous operations that are missing, and those that are not needed.

    %1 = gpu.launch_func async [%0] @m::@a … args(%x, %y)
    %2 = gpu.launch_func async [%1] @m::@b … args(%x, %z)     // not needed: neither uses what the other writes
    gpu.wait [%2]                                             // waits for %1, too, once %2 does not

A wait is needed if one of the two operations writes memory that the other uses, or if the order of two others that do
follows from it alone. All waits that are listed can be removed at once, if the host's next `gpu.wait` waits for their
tokens. The host's order and that of each stream are no waits. Blocks are compared one by one: loops and branches, and
what the host does after a block, may use any memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.compiler.frontends.gpu.checks import is_token
from motet.compiler.frontends.gpu.effects import Effects
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.gpu.missing_tokens import (
    TERMINATORS,
    WAIT,
    MissingWait,
    has_inner_launches,
    known_effects,
    missing_waits,
    streams_of,
)
from motet.compiler.frontends.gpu.parts import Part
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.job import ListedWait


def list_waits(module: ir.Module) -> list[ListedWait]:
    """The waits of a program, as its front end builds it, that are missing or not needed."""
    run_pipeline(module, "gpu-kernel-outlining")
    found: list[ListedWait] = []
    for function in (entry.operation for entry in module.body.operations if entry.operation.name == "func.func"):
        found += [_listed("missing", each) for each in missing_waits(module, function)]
        for block in _blocks(function):
            found += [_listed("not needed", each) for each in _Order(module, block).unneeded()]
    return found


def _blocks(operation: ir.Operation) -> Iterator[ir.Block]:
    """The blocks of a function and of the loops and branches in it that contain operations of `gpu`."""
    for block in (block for region in operation.regions for block in region.blocks):
        yield block
        for entry in block.operations:
            if has_inner_launches(entry.operation):
                yield from _blocks(entry.operation)


def _listed(kind: str, wait: MissingWait | _UnneededWait) -> ListedWait:
    places = [str(locate(each.location) or "") for each in (wait.operation, wait.earlier)]
    return ListedWait(kind, wait.operation.name, places[0], wait.earlier.name, places[1], str(wait))


@dataclass(frozen=True)
class _UnneededWait:
    """An operation that waits for an earlier one in vain, and the operation of the host that must name its token then,
    because it only waits for it in this way."""

    operation: ir.Operation
    earlier: ir.Operation
    host: ir.Operation | None

    def __str__(self) -> str:
        instead = f", for which {self.host.name} at {locate(self.host.location)} must wait instead" if self.host else ""
        return (
            f"{self.operation.name}: it waits for {self.earlier.name} at {locate(self.earlier.location)}{instead}; "
            "neither uses what the other writes, and no other order depends on it"
        )


@dataclass
class _Node:
    """An operation and the numbers of the operations it waits for: through its own tokens (`waits`), and regardless of
    them (`follows`)."""

    operation: ir.Operation
    effects: Effects
    is_host: bool
    waits: set[int]
    follows: frozenset[int]


@dataclass
class _Order:
    """The operations of a block that wait or are waited for, and for each the set of those that have ended when it
    starts, and of those that must have, as bits."""

    module: ir.Module
    block: ir.Block
    nodes: list[_Node] = field(default_factory=list[_Node])
    conflicts: list[int] = field(default_factory=list[int])
    before: list[int] = field(default_factory=list[int])

    def unneeded(self) -> Iterator[_UnneededWait]:
        self._read()
        self.before = self._ended(0)
        for number, node in enumerate(self.nodes):
            for earlier in sorted(node.waits):
                if self.conflicts[number] >> earlier & 1 or (removed := self._without(number, earlier)) is None:
                    continue
                self.before, host = removed
                at = None if host is None else self.nodes[host].operation
                yield _UnneededWait(node.operation, self.nodes[earlier].operation, at)

    def _read(self) -> None:
        """Tokens of `gpu.wait async` stand for the operations that these wait for."""
        behind: dict[ir.Value, frozenset[int]] = {}
        host: frozenset[int] = frozenset()  # the last operation of the host
        nothing: frozenset[int] = frozenset()
        for operation in [entry.operation for entry in self.block.operations]:
            if operation.name in TERMINATORS:
                continue
            nests = has_inner_launches(operation)
            parts = [operation, *within(operation)] if nests else [operation]
            waits = nothing.union(*(behind.get(each, nothing) for part in parts for each in part.operands
                                    if is_token(each) and not any(each == one for one in streams_of(part))))
            streams = [each for part in parts for each in streams_of(part)]
            order = nothing.union(*(behind.get(each, nothing) for each in streams))
            made = [] if nests else [*filter(is_token, operation.results), *streams]
            if operation.name == WAIT and made:
                behind |= dict.fromkeys(made, waits)
                continue
            effects = Effects(everything=True) if nests else self._effects(operation)
            if not made and effects.none and not waits:
                continue  # it has no part in any order
            this = frozenset({len(self.nodes)})
            follows = host | order | (waits if nests else nothing)
            self.conflicts.append(sum(1 << i for i, one in enumerate(self.nodes) if one.effects.conflicts(effects)))
            self.nodes.append(_Node(operation, effects, not made, set() if nests else set(waits), follows))
            host = host if made else this
            behind |= dict.fromkeys(made, this)

    def _effects(self, operation: ir.Operation) -> Effects:
        """The effects of an operation; an allocation writes what it makes, as what uses it waits for it."""
        if operation.name == "gpu.alloc":
            return Effects(writes=frozenset({Part(operation.results[0])}))
        return known_effects(operation, self.module)

    def _ended(self, start: int) -> list[int]:
        """What has ended when each operation from `start` on starts, after those of `before`."""
        ended = self.before[:start]
        for node in self.nodes[start:]:
            bits = 0
            for earlier in node.waits | node.follows:
                bits |= ended[earlier] | 1 << earlier
            ended.append(bits)
        return ended

    def _without(self, number: int, earlier: int) -> tuple[list[int], int | None] | None:
        """What has ended when each operation starts, and the operation of the host that waits for `earlier` instead, if
        operation `number` does not; None if it must."""
        node, moved = self.nodes[number], None
        node.waits.discard(earlier)
        ended = self._ended(number)
        if not node.is_host:
            moved = next((i for i in range(number + 1, len(ended))
                          if self.nodes[i].is_host and (self.before[i] & ~ended[i]) >> earlier & 1), None)
        if moved is not None:
            self.nodes[moved].waits.add(earlier)
            ended = self._ended(number)
        lost = [before & ~after for before, after in zip(self.before, ended, strict=True)]
        last = next((i for i in range(len(ended) - 1, -1, -1) if self.nodes[i].is_host), 0)
        if not lost[last] and not any(a & b for a, b in zip(lost, self.conflicts, strict=True)):
            return ended, moved
        node.waits.add(earlier)
        if moved is not None:
            self.nodes[moved].waits.discard(earlier)
        return None
