"""Finds the operations of a program without code for a family, before placement is final.

Each operation becomes a separate function, with the sizes and small constants that it reads. These functions are
lowered to kernels like every program, and the back ends are asked about each kernel (`Backend.obstacle`). No machine
code is made: obstacles that only show then (too few registers or too little shared memory, an import that the device's
library lacks), or only in a fused kernel, are reported later, by `NoCode`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from motet.compiler.build.partitioning import fuse_program, partition
from motet.compiler.codegen.backend import Backend
from motet.compiler.codegen.backends import backend_of
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.devices import AFFINITY, STAGE, TURN
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.launches import AS_WRITTEN, LAUNCH
from motet.compiler.ir.program import Program, parameters_of
from motet.compiler.ir.remap import remap
from motet.compiler.ir.store_short import NATIVE, store_short_elements
from motet.compiler.kernels.layout import callee, is_renaming
from motet.compiler.passes.running import observed, run_upstream
from motet.compiler.pipeline import normalise
from motet.compiler.placement.affinity_analysis import REPLICABLE, is_replicable, is_tensor
from motet.compiler.targets.families import resolve_target, target_names
from motet.compiler.targets.family import Target
from motet.errors import CompileError

_SMALL = 1024  # elements; larger constants are data rather than part of an operation
_PLACING = (AFFINITY, STAGE, TURN)
_FAILURES = (CompileError, ir.MLIRError, ValueError)  # of a pass on a single operation


@dataclass
class Obstacles:
    """`names` are the full names of the program's targets; for a family without any, its defaults are used. `known`
    caches answers by family and by the text of the function."""

    names: Sequence[str]
    known: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def find(self, family: str, function: ir.Operation) -> dict[int, str]:
        """Why operations of `function` have no code on devices of `family`, by their positions in it. Operations on
        constants are omitted: they run when compiling."""
        backends = [backend for backend in map(backend_of, self._targets(family)) if not backend.complete]
        if not backends:
            return {}
        keys: dict[int, str] = {}
        module = ir.Module.create()
        for position, operation in _asked(function):
            keys[position] = key = _copy(operation, module, f"f{position}")
            if (family, key) in self.known:
                module.body.operations[len(module.body.operations) - 1].operation.erase()
            self.known.setdefault((family, key), "")
        for position, reason in _ask(module, backends).items():
            self.known[family, keys[position]] = reason
        found = {position: self.known[family, key] for position, key in keys.items()}
        return {position: reason for position, reason in found.items() if reason}

    def _targets(self, family: str) -> list[Target]:
        known = [target for target in map(resolve_target, self.names) if target.family == family]
        return known or [resolve_target(name) for name in target_names(family, {}, family)]


# -- functions to ask about ------------------------------------------------------------------------


def _asked(function: ir.Operation) -> Iterator[tuple[int, ir.Operation]]:
    """The operations of a function that compute tensors at run time, with their positions."""
    block = function.regions[0].blocks[0]
    constant = set(parameters_of(function))
    for position, entry in enumerate(block.operations):
        operation = entry.operation
        read = [value for value in captured_values(operation) if is_tensor(value)]
        if operation.name in REPLICABLE or (read and all(value in constant for value in read)):
            constant.update(operation.results)
        elif len(operation.results) and not is_replicable(operation) and not _is_placed_whole(operation):
            yield position, operation


def _is_placed_whole(operation: ir.Operation) -> bool:
    """Whether an operation is not a computation, or is a launch kept as written."""
    kept = any(name in operation.attributes for name in (AS_WRITTEN, LAUNCH))
    return kept or operation.name.startswith(("motet.", "func."))


def _copy(operation: ir.Operation, module: ir.Module, name: str) -> str:
    """Add a function equivalent to `operation` to `module`; returns its text without its name."""
    copied: list[ir.Operation] = []
    leaves: list[ir.Value] = []
    _collect(operation, copied, leaves, set())
    kinds = [value.type for value in leaves], [_returned(value.type) for value in operation.results]
    with ir.InsertionPoint(module.body):
        made = func.FuncOp(name, kinds)
    block = made.add_entry_block()
    mapping = dict(zip(leaves, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for each in copied:
            copy = each.clone()
            remap(copy, mapping)
            for attribute in _PLACING:
                if attribute in copy.attributes:
                    del copy.attributes[attribute]
            mapping.update(zip(each.results, copy.results, strict=True))
        func.ReturnOp([_as_tensor(mapping[value]) for value in operation.results])
    return made.operation.get_asm(large_elements_limit=16, use_local_scope=True).replace(f"@{name}(", "@(", 1)


def _collect(operation: ir.Operation, copied: list[ir.Operation], leaves: list[ir.Value], seen: set[ir.Value]) -> None:
    """Append `operation`, after the sizes, scalars and small constants that it depends on, to `copied`; append the
    tensors that they read to `leaves`."""
    for value in captured_values(operation):
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, ir.Block) or (is_tensor(value) and not _is_part(value.owner.operation)):
            leaves.append(value)
        else:
            seen.update(value.owner.operation.results)
            _collect(value.owner.operation, copied, leaves, seen)
    copied.append(operation)


def _is_part(operation: ir.Operation) -> bool:
    """Whether a tensor is copied together with its reader."""
    kind = operation.results[0].type
    if operation.name not in REPLICABLE or not isinstance(kind, ir.RankedTensorType):
        return False
    return operation.name != "arith.constant" or (kind.has_static_shape and math.prod(kind.shape) <= _SMALL)


def _returned(kind: ir.Type) -> ir.Type:
    return kind if isinstance(kind, ir.ShapedType) else ir.RankedTensorType.get([], kind)


def _as_tensor(value: ir.Value) -> ir.Value:
    if is_tensor(value):
        return value
    made = ir.Operation.create("tensor.from_elements", results=[_returned(value.type)], operands=[value])
    return made.results[0]


# -- asking the back ends --------------------------------------------------------------------------


def _ask(module: ir.Module, backends: Sequence[Backend]) -> dict[int, str]:
    """Why the functions of `module` have no code, by the numbers in their names."""
    functions = public_functions(module)
    if not functions:
        return {}
    texts = {symbol_name(each): each.get_asm(enable_debug_info=False) for each in functions}
    try:
        with observed(None):  # passes are reported for the program itself only
            return _reasons(Program(module), backends)
    except _FAILURES:
        if len(texts) == 1:
            return {}  # the error is reported when the program is compiled
    found: dict[int, str] = {}
    for text in texts.values():
        found |= _ask(ir.Module.parse(text), backends)
    return found


def _reasons(program: Program, backends: Sequence[Backend]) -> dict[int, str]:
    found: dict[int, str] = {}
    run_upstream("convert-elementwise-to-linalg,canonicalize,cse", program.module)
    store_short_elements(program.module, NATIVE)
    normalise(program)
    program = fuse_program(program, [backend.target for backend in backends])
    kernels = partition(program)
    for function in public_functions(program.module):
        body = [each.operation for each in function.regions[0].blocks[0].operations]
        for name in [callee(each) for each in body if each.name == "func.call"]:
            kernel = kernels.readable.get(name)
            if kernel is not None and is_renaming(kernel):
                continue
            for backend in backends:
                reason = backend.obstacle(kernels.functions[name], kernel, kernels.reasons.get(name, ""))
                if reason is not None:
                    found.setdefault(int(symbol_name(function)[1:]), reason)
    return found
