"""inline-calls: inlines calls, together with the device annotations of the called functions.

    func.func @f(%x) {                                          func.func @f(%x) {
      %0 = call @g(%x)                                            %0 = "motet.transfer"(%x) {to = "gpu"}
    …                                                      →      %1 = math.exp %0 {motet.affinity = "gpu"}
    func.func private @g(%y: … {motet.affinity = "gpu"})
        attributes {motet.affinity = "gpu"} {
      %1 = math.exp %y …

An operation's own affinity takes precedence over its function's, and that over the call's. Upstream's inliner handles
neither transfers nor affinities; it is used for programs without devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, TO, TRANSFER_OP
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.launches import LAUNCH
from motet.compiler.ir.remap import remap
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.passes.base import ModulePass
from motet.errors import CompileError

CALL = "func.call"


@dataclass(frozen=True)
class InlineCalls(ModulePass):
    """Raises CompileError, at the call, for recursive functions and for functions with branches between blocks."""

    name = "inline-calls"

    def run(self, module: ir.Module) -> None:
        refuse_recursion(module)
        if not uses_devices(module):
            return
        functions = _functions(module)
        done: set[str] = set()
        for name in functions:
            _inline_into(name, functions, done)


def refuse_recursion(module: ir.Module) -> None:
    """Raises CompileError for recursive functions, including indirect recursion. Upstream's inliner keeps recursive
    calls, and resolves calls through a function value to calls by name."""
    ends: set[str] = set()
    functions = _functions(module)
    for name in functions:
        _require_an_end(name, functions, ends, ())


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
    return {
        symbol_name(entry.operation): entry.operation
        for entry in module.body.operations
        if entry.operation.name == "func.func" and len(entry.operation.regions[0].blocks)
    }


def _require_an_end(
    name: str, functions: Mapping[str, ir.Operation], done: set[str], around: tuple[str, ...]
) -> None:
    if name in done:
        return
    for call in find_operations(functions[name], CALL):
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if callee in (*around, name):
            raise CompileError(f"call of @{callee}: it calls itself; expected calls that end", locate(call.location))
        if callee in functions:
            _require_an_end(callee, functions, done, (*around, name))
    done.add(name)


def _inline_into(name: str, functions: Mapping[str, ir.Operation], done: set[str]) -> None:
    """Inlines all calls in a function; first those in the functions that it calls."""
    if name in done:
        return
    for call in find_operations(functions[name], CALL):
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if callee not in functions:
            continue  # no body: refused elsewhere, together with all such functions
        if LAUNCH in functions[callee].attributes:
            continue
        _inline_into(callee, functions, done)
        _inline(call, functions[callee])
    done.add(name)


def _inline(call: ir.Operation, callee: ir.Operation) -> None:
    blocks = list(callee.regions[0].blocks)
    if len(blocks) != 1:
        raise CompileError(
            f"call of @{symbol_name(callee)}: it has branches between blocks, which a program for several devices "
            "cannot call; expected scf.if, scf.for or scf.while", locate(call.location),
        )
    said = callee.attributes.get(AFFINITY) or call.attributes.get(AFFINITY)
    arguments = list(blocks[0].arguments)
    mapping = dict(zip(arguments, _moved(list(call.operands), callee, "arg_attrs", call), strict=True))
    results: list[ir.Value] = []
    for entry in blocks[0].operations:
        operation = entry.operation
        if operation.name == "func.return":
            results = [mapping.get(value, value) for value in operation.operands]
            continue
        copy = operation.clone(ir.InsertionPoint(call))
        remap(copy, mapping)
        if said is not None and AFFINITY not in copy.attributes and copy.name != TRANSFER_OP:
            copy.attributes[AFFINITY] = said
        mapping.update(zip(operation.results, copy.results, strict=True))
    for old, new in zip(call.results, _moved(results, callee, "res_attrs", call), strict=True):
        old.replace_all_uses_with(new)
    call.erase()


def _moved(values: list[ir.Value], callee: ir.Operation, group: str, call: ir.Operation) -> list[ir.Value]:
    """The operands or results of a call, transferred to the devices that its function requires."""
    if group not in callee.attributes:
        return values
    moved: list[ir.Value] = []
    for value, attribute in zip(values, ir.ArrayAttr(callee.attributes[group]), strict=True):
        said = ir.DictAttr(attribute)
        if AFFINITY in said and isinstance(value.type, (ir.MemRefType, ir.UnrankedMemRefType)):
            raise CompileError(
                f"call of @{symbol_name(callee)}: it wants {value.type} on {said[AFFINITY]}; expected tensors "
                "where a function that is called has its arguments or results on a device", locate(call.location)
            )
        if AFFINITY in said and isinstance(value.type, ir.ShapedType):
            value = ir.Operation.create(
                TRANSFER_OP, results=[value.type], operands=[value], attributes={TO: said[AFFINITY]},
                loc=call.location, ip=ir.InsertionPoint(call),
            ).results[0]
        moved.append(value)
    return moved
