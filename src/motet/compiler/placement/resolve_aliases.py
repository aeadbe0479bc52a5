"""resolve-aliases: replaces the alternative names of device families by their canonical names.

    "motet.device"() {sym_name = "a",                     "motet.device"() {sym_name = "a",
                      alternatives = ["local[1]",    →                      alternatives = ["host[1]", "cuda"]}
                                      "cuda-nvptx", "host[1]"]}

Repeated alternatives are removed. Unknown names are kept: a driver may provide them.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from motet.artifact.device_flags import print_alternative
from motet.artifact.schema import Alternative
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import ALTERNATIVES
from motet.compiler.ir.hal_attributes import own_family
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.read_devices import alternatives_of, declarations


@dataclass(frozen=True)
class ResolveAliases(ModulePass):
    name = "resolve-aliases"

    def run(self, module: ir.Module) -> None:
        for declaration in declarations(module):
            resolved = dict.fromkeys(resolve_alias(one) for one in alternatives_of(declaration))
            texts = [ir.StringAttr.get(print_alternative(one)) for one in resolved]
            declaration.attributes[ALTERNATIVES] = ir.ArrayAttr.get(texts)


def resolve_alias(alternative: Alternative) -> Alternative:
    """The same alternative with the canonical name of its family."""
    return structs.replace(alternative, family=own_family(alternative.family))
