"""check-code: refuses regions on devices without a code generator for any of their families; changes nothing.

    func.func @f_region_0(…) attributes {motet.device = "gpu"}     error: @gpu runs this, but no code can be made for
    where @gpu is cuda or hip                                      cuda, hip; …
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import DEVICE
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.families import device_families
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.targets.families import families_with_code
from motet.errors import CompileError


@dataclass(frozen=True)
class CheckCode(ModulePass):
    """Raises CompileError, at the first operation of the region."""

    name = "check-code"

    def run(self, module: ir.Module) -> None:
        known = families_with_code()
        devices, _, _ = devices_of(module)
        checked: set[str] = set()
        for function in public_functions(module):
            device = ir.StringAttr(function.attributes[DEVICE]).value if DEVICE in function.attributes else ""
            if not device or device in checked:
                continue
            checked.add(device)
            asked = device_families(devices, device)
            if not any(family in known for family in asked):
                raise CompileError(
                    f"@{device} runs this, but no code can be made for {', '.join(asked) or 'a device of any family'}; "
                    f"available: {', '.join(known)}; give it another alternative: --device {device}=…,host",
                    locate(function.location),
                )
