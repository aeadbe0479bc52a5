"""Finds operations that use memory which an asynchronous one is still using, since they wait for no token of it.

    %t0 = gpu.launch_func async @m::@a … args(%x, %y)     // writes %y
    %t1 = gpu.launch_func async @m::@b … args(%y, %z)     // warning: it reads what … writes, and does not wait for it

Operations run in program order anyway (lower-launches); elsewhere such a program may give other numbers.
An operation waits for its tokens and for what these wait for, and a launch for those before it on its stream; a
`gpu.wait` that makes no token ends what it waits for.
Operations whose memory is unknown, and those of different iterations of a loop, are not compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from motet.compiler.frontends.gpu.checks import is_token, stream_of
from motet.compiler.frontends.gpu.effects import Effects, effects_of, has_launches, kernel_body
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.gpu.spellings import LAUNCH
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import STRICT_TOKENS
from motet.errors import CompileError

_LOG = logging.getLogger("motet")
WAIT = "gpu.wait"
TERMINATORS = ("func.return", "scf.yield", "affine.yield", "cf.br", "cf.cond_br")


@dataclass(frozen=True)
class MissingWait:
    """An operation that does not wait for an earlier one, which uses the same memory, and the effects of both."""

    operation: ir.Operation
    effects: Effects
    earlier: ir.Operation
    others: Effects

    def __str__(self) -> str:
        reads = Effects(reads=self.effects.reads).conflicts(self.others)
        both_write = Effects(writes=self.effects.writes).conflicts(Effects(writes=self.others.writes))
        return (
            f"{self.operation.name}: it {'reads' if reads else 'writes'} memory that {self.earlier.name} at "
            f"{locate(self.earlier.location)} {'writes' if reads or both_write else 'reads'}, and waits for no token "
            "of it; expected that token among those that it waits for, or a gpu.wait for it before"
        )


def check_waits(module: ir.Module, function: ir.Operation) -> None:
    """Warns of each operation of a function that waits for too little. Raises CompileError for the first one if the
    module has `STRICT_TOKENS`."""
    for missing in missing_waits(module, function):
        place, text = locate(missing.operation.location), str(missing)
        if STRICT_TOKENS in module.operation.attributes:
            raise CompileError(text, place)
        _LOG.warning("%s: %s; it runs after it", place, text)


def missing_waits(module: ir.Module, function: ir.Operation) -> Iterator[MissingWait]:
    """For each operation of a function that waits for too little, the first that it does not wait for."""
    operations = within(function)
    if any(streams_of(operation) or any(map(is_token, operation.results)) for operation in operations):
        for region in function.regions:
            for block in region.blocks:
                yield from _missing(module, block, _InFlight())


@dataclass
class _InFlight:
    """The asynchronous operations before some place: their effects, by number; what each token waits for; and the
    operations that have ended."""

    running: list[tuple[ir.Operation, Effects]] = field(default_factory=list[tuple[ir.Operation, Effects]])
    waits: dict[ir.Value, frozenset[int]] = field(default_factory=dict[ir.Value, frozenset[int]])
    ended: frozenset[int] = frozenset()

    def known(self, operation: ir.Operation) -> frozenset[int]:
        """What has ended when an operation starts."""
        waited = [*filter(is_token, operation.operands), *streams_of(operation)]
        return self.ended.union(*(self.waits.get(each, frozenset[int]()) for each in waited))

    def conflicts(self, effects: Effects, known: frozenset[int]) -> Iterator[tuple[ir.Operation, Effects]]:
        for number, (operation, other) in enumerate(self.running):
            unknown = effects.everything or other.everything
            if number not in known and not unknown and other.conflicts(effects):
                yield operation, other

    def start(self, operation: ir.Operation, effects: Effects, known: frozenset[int]) -> None:
        """Notes an operation: one that makes a token, or is put on a stream, runs on; any other has ended, with what
        it waited for."""
        tokens = [*filter(is_token, operation.results), *streams_of(operation)]
        if tokens and operation.name != WAIT:
            known |= {len(self.running)}
            self.running.append((operation, effects))
        if not tokens:
            self.ended = known
        self.waits |= dict.fromkeys(tokens, known)


def streams_of(operation: ir.Operation) -> list[ir.Value]:
    """The stream that an operation is put on, if any."""
    stream = stream_of(operation)
    return [] if stream is None else [stream]


def known_effects(operation: ir.Operation, module: ir.Module) -> Effects:
    """The effects of an operation; a kernel that the file does not define may use any memory."""
    if operation.name == LAUNCH and kernel_body(operation, module) is None:
        return Effects(everything=True)
    return effects_of(operation, module)


def has_inner_launches(operation: ir.Operation) -> bool:
    """Whether an operation is a loop or branch around operations of `gpu`."""
    return not operation.name.startswith("gpu.") and has_launches(operation)


def _missing(module: ir.Module, block: ir.Block, state: _InFlight) -> Iterator[MissingWait]:
    for operation in [entry.operation for entry in block.operations]:
        if operation.name in TERMINATORS:
            continue
        if has_inner_launches(operation):
            for inner in (inner for region in operation.regions for inner in region.blocks):
                yield from _missing(module, inner, _InFlight([*state.running], dict(state.waits), state.ended))
            state.ended = state.ended.union(*(state.known(inner) for inner in within(operation)))
            continue
        effects = known_effects(operation, module)
        known = state.known(operation)
        for earlier, others in state.conflicts(effects, known):
            yield MissingWait(operation, effects, earlier, others)
            break
        state.start(operation, effects, known)
