"""gpu-concurrency: makes GPU operations asynchronous, waiting only for the operations that they depend on.

    gpu.launch_func @a … args(%x, %y)               %t0 = gpu.wait async
    gpu.launch_func @b … args(%x, %z)        →      %t1 = gpu.launch_func async [%t0] @a … args(%x, %y)
    gpu.launch_func @c … args(%y, %z, %r)           %t2 = gpu.wait async
                                                    %t3 = gpu.launch_func async [%t2] @b … args(%x, %z)
                                                    %t4 = gpu.wait async [%t1, %t3]
                                                    %t5 = gpu.launch_func async [%t4] @c … args(%y, %z, %r)
                                                    gpu.wait [%t5]

Two operations depend on each other if one writes memory that the other reads or writes. The pass replaces the tokens
and waits of the module; program order, which they cannot contradict, decides which of two comes first. The host waits
before it accesses memory in use, and before it leaves a block; its allocations in between do not wait. Waits implied by
others are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.compiler.frontends.gpu.checks import (
    LAUNCHES,
    check_function,
    check_sizes,
    computed_with,
    is_token,
    sizes_with,
)
from motet.compiler.frontends.gpu.effects import Effects, effects_of, has_launches
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import ModulePass

_ASYNC = ("gpu.launch_func", "gpu.launch", "gpu.memcpy", "gpu.memset", "gpu.dealloc")
_TERMINATORS = ("func.return", "scf.yield", "scf.condition", "affine.yield", "cf.br", "cf.cond_br")


@dataclass(eq=False)
class _Running:
    """An operation in flight on the device: its token, its effects, and the operations known to have ended with it."""

    token: ir.Value
    effects: Effects
    implies: set[_Running] = field(default_factory=set["_Running"])


class GpuConcurrency(ModulePass):
    """Raises CompileError for invalid launches, tokens and uses of memory (`checks.py`)."""

    name = "gpu-concurrency"

    def run(self, module: ir.Module) -> None:
        for entry in module.body.operations:
            function = entry.operation
            if function.name == "func.func" and has_launches(function):
                operations = within(function)
                check_function(operations)
                for operation in operations:
                    if operation.name in LAUNCHES:
                        check_sizes(operation)
                for region in function.regions:
                    for block in list(region.blocks):
                        _LaunchBlock(module, block).run()


class _LaunchBlock:
    def __init__(self, module: ir.Module, block: ir.Block) -> None:
        self.module = module
        self.block = block
        self.running: list[_Running] = []
        self.old: list[ir.Operation] = []
        with module.context:
            self.token = ir.Type.parse("!gpu.async.token")

    def run(self) -> None:
        for operation in [entry.operation for entry in self.block.operations]:
            if operation.name == "gpu.wait":
                self.old.append(operation)
            elif operation.name in _ASYNC or any(map(is_token, operation.results)):
                self._start(operation)
            else:
                self._on_host(operation)
        for operation in reversed(self.old):
            operation.erase()

    # -- the device ------------------------------------------------------------------------------

    def _start(self, operation: ir.Operation) -> None:
        effects = effects_of(operation, self.module)
        needed = self._unimplied([other for other in self.running if other.effects.conflicts(effects)])
        waited = [other.token for other in needed]
        if len(waited) != 1:
            waited = [self._wait(waited, operation, [self.token]).results[0]]
        new = self._with_tokens(operation, waited)
        running = _Running(new.results[len(new.results) - 1], effects)
        for other in needed:
            running.implies |= {other} | other.implies
        self.running.append(running)

    def _with_tokens(self, operation: ir.Operation, waited: list[ir.Value]) -> ir.Operation:
        """A copy of the operation that is asynchronous and waits for these tokens only."""
        operands = computed_with(operation)
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        if "operandSegmentSizes" in attributes:
            attributes["operandSegmentSizes"] = sizes_with(operation, len(waited))
        kinds = [result.type for result in operation.results if not is_token(result)]
        new = ir.Operation.create(
            operation.name, results=[*kinds, self.token], operands=[*waited, *operands], attributes=attributes,
            regions=len(operation.regions), loc=operation.location, ip=ir.InsertionPoint(operation),
        )
        for region, target in zip(operation.regions, new.regions, strict=True):
            for block in list(region.blocks):
                block.append_to(target)
        for before, after in zip(operation.results, new.results, strict=False):
            before.replace_all_uses_with(after)
        self.old.append(operation)
        return new

    def _wait(self, tokens: list[ir.Value], at: ir.Operation, results: list[ir.Type]) -> ir.Operation:
        return ir.Operation.create(
            "gpu.wait", results=results, operands=tokens, loc=at.location, ip=ir.InsertionPoint(at)
        )

    def _unimplied(self, running: list[_Running]) -> list[_Running]:
        """The operations whose end is not implied by the end of the others."""
        implied = {other for one in running for other in one.implies}
        return [one for one in running if one not in implied]

    # -- the host --------------------------------------------------------------------------------

    def _on_host(self, operation: ir.Operation) -> None:
        nested = has_launches(operation)
        if nested or operation.name in _TERMINATORS:
            needed = list(self.running)
        else:
            effects = effects_of(operation, self.module)
            needed = [other for other in self.running if other.effects.conflicts(effects)]
        if needed:
            self._wait([other.token for other in self._unimplied(needed)], operation, [])
            ended = set(needed).union(*(other.implies for other in needed))
            self.running = [other for other in self.running if other not in ended]
        if nested:
            for region in operation.regions:
                for block in list(region.blocks):
                    _LaunchBlock(self.module, block).run()
