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
_WAIT = "gpu.wait"
_LEFT_OUT = ("func.return", "scf.yield", "affine.yield", "cf.br", "cf.cond_br")


def check_waits(module: ir.Module, function: ir.Operation) -> None:
    """Warns of each operation of a function that waits for too little. Raises CompileError for the first one if the
    module has `STRICT_TOKENS`."""
    operations = within(function)
    if not any(_streams(operation) or any(map(is_token, operation.results)) for operation in operations):
        return
    strict = STRICT_TOKENS in module.operation.attributes
    for region in function.regions:
        for block in region.blocks:
            _check(module, block, _InFlight(), strict)


@dataclass
class _InFlight:
    """The asynchronous operations before some place: their effects, by number; what each token waits for; and the
    operations that have ended."""

    running: list[tuple[ir.Operation, Effects]] = field(default_factory=list[tuple[ir.Operation, Effects]])
    waits: dict[ir.Value, frozenset[int]] = field(default_factory=dict[ir.Value, frozenset[int]])
    ended: frozenset[int] = frozenset()

    def known(self, operation: ir.Operation) -> frozenset[int]:
        """What has ended when an operation starts."""
        waited = [*filter(is_token, operation.operands), *_streams(operation)]
        return self.ended.union(*(self.waits.get(each, frozenset[int]()) for each in waited))

    def conflicts(self, effects: Effects, known: frozenset[int]) -> Iterator[tuple[ir.Operation, Effects]]:
        for number, (operation, other) in enumerate(self.running):
            unknown = effects.everything or other.everything
            if number not in known and not unknown and other.conflicts(effects):
                yield operation, other

    def start(self, operation: ir.Operation, effects: Effects, known: frozenset[int]) -> None:
        """Notes an operation: one that makes a token, or is put on a stream, runs on; any other has ended, with what
        it waited for."""
        tokens = [*filter(is_token, operation.results), *_streams(operation)]
        if tokens and operation.name != _WAIT:
            known |= {len(self.running)}
            self.running.append((operation, effects))
        if not tokens:
            self.ended = known
        self.waits |= dict.fromkeys(tokens, known)


def _streams(operation: ir.Operation) -> list[ir.Value]:
    stream = stream_of(operation)
    return [] if stream is None else [stream]


def _check(module: ir.Module, block: ir.Block, state: _InFlight, strict: bool) -> None:
    for operation in [entry.operation for entry in block.operations]:
        if operation.name in _LEFT_OUT:
            continue
        if not operation.name.startswith("gpu.") and has_launches(operation):
            for inner in (inner for region in operation.regions for inner in region.blocks):
                _check(module, inner, _InFlight([*state.running], dict(state.waits), state.ended), strict)
            state.ended = state.ended.union(*(state.known(inner) for inner in within(operation)))
            continue
        is_unknown = operation.name == LAUNCH and kernel_body(operation, module) is None
        effects = Effects(everything=True) if is_unknown else effects_of(operation, module)
        known = state.known(operation)
        for earlier, others in state.conflicts(effects, known):
            _report(operation, effects, earlier, others, strict)
            break
        state.start(operation, effects, known)


def _report(
    operation: ir.Operation, effects: Effects, earlier: ir.Operation, others: Effects, strict: bool
) -> None:
    reads = Effects(reads=effects.reads).conflicts(others)
    does = "reads" if reads else "writes"
    did = "writes" if reads or Effects(writes=effects.writes).conflicts(Effects(writes=others.writes)) else "reads"
    message = (
        f"{operation.name}: it {does} memory that {earlier.name} at {locate(earlier.location)} {did}, and waits for no "
        "token of it; expected that token among those that it waits for, or a gpu.wait for it before"
    )
    if strict:
        raise CompileError(message, locate(operation.location))
    _LOG.warning("%s: %s; it runs after it", locate(operation.location), message)
