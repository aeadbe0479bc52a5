"""Rewrites globals of upstream's dialect ml_program into the form that the passes on globals read.

    ml_program.global private mutable @s(dense<0.0> : tensor<4xf32>) : tensor<4xf32>     →  "util.global"() {…}
    %0 = ml_program.global_load @s : tensor<4xf32>                                       →  "util.global.load"() {…}
    ml_program.global_store @s = %1 : tensor<4xf32>                                      →  "util.global.store"(%1) {…}
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import GLOBAL_OP, LOAD_OP, STORE_OP
from motet.compiler.ir.find import find_operations

_GLOBAL = "ml_program.global"
_ACCESSES = {
    "ml_program.global_load": LOAD_OP, "ml_program.global_load_const": LOAD_OP, "ml_program.global_store": STORE_OP,
}


def read_ml_program_globals(module: ir.Module) -> None:
    """Rewrites the module in place."""
    for found in find_operations(module, _GLOBAL, *_ACCESSES):
        name = GLOBAL_OP if found.name == _GLOBAL else _ACCESSES[found.name]
        attributes = {name: found.attributes[name] for name in found.attributes}
        if "value" in attributes:
            attributes["initial_value"] = attributes.pop("value")
        made = ir.Operation.create(
            name, results=[result.type for result in found.results], operands=list(found.operands),
            attributes=attributes, loc=found.location, ip=ir.InsertionPoint(found),
        )
        for old, new in zip(found.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        found.erase()
