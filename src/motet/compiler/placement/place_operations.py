"""place-operations: assigns every operation the one device that it runs on.

    %0 = linalg.fill …                                 %0 = linalg.fill … {motet.affinity = "cpu|gpu"}
    %1 = "motet.transfer"(%x) {to = "gpu|npu"}  →      %1 = "motet.transfer"(%x) {to = "gpu"}
    %2 = arith.addf %1, %1                             %2 = arith.addf %1, %1 {motet.affinity = "gpu"}

Operations that are recomputed on several devices instead of transferred keep all of them. A number that a branch or
loop computes becomes a tensor of rank 0 on its device, which can be moved to the device of a reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, LOOP_OP, TO, TRANSFER_OP, executable_with
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.passes.base import ModulePass
from motet.compiler.passes.normalise.store_scalar_results import store_scalars
from motet.compiler.placement.affinity_analysis import CONTROL, AffinityAnalysis, AffinityNode
from motet.compiler.placement.default_device import default_affinity
from motet.errors import CompileError


@dataclass(frozen=True)
class PlaceOperations(ModulePass):
    """Raises CompileError for functions of several blocks, and for branches and loops whose parts have affinities to
    several devices."""

    name = "place-operations"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            default = default_affinity(module, function)
            if default is None:
                continue
            _check_blocks(function)
            analysis = AffinityAnalysis(function, default)
            for node in analysis.top[:-1]:
                if node.operation.name == LOOP_OP:
                    continue
                _check_control(node)
                chosen = ir.StringAttr.get(str(node.affinity or analysis.default))
                node.operation.attributes[TO if node.operation.name == TRANSFER_OP else AFFINITY] = chosen
                for stored in store_scalars(node.operation) if node.operation.name in CONTROL else []:
                    stored.attributes[AFFINITY] = chosen


def _check_blocks(function: ir.Operation) -> None:
    if len(function.regions[0].blocks) != 1:
        raise CompileError(
            f"@{symbol_name(function)}: branches between blocks cannot be placed on devices; expected one block, "
            "and scf.if, scf.for or scf.while in it", locate(function.location),
        )


def _check_control(node: AffinityNode) -> None:
    """Checks that control flow runs on one device as a whole, on queues that each of its parts allows."""
    whole = node.affinity
    parts = [
        inner.affinity for inner in node.inner
        if inner.affinity is not None and (inner.own or inner.operation.name == TRANSFER_OP)
    ]
    if not parts or whole is None or (whole.device is not None and all(executable_with(part, whole) for part in parts)):
        return
    said = [whole, *parts] if node.own else parts
    names = " and ".join(f"@{affinity}" for affinity in dict.fromkeys(said))
    raise CompileError(
        f"{node.operation.name}: its parts are placed on {names}; expected all of a branch or loop on one device",
        locate(node.operation.location),
    )
