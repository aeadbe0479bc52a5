"""place-operations: writes on every operation the one device that it runs on.

    %0 = linalg.fill …                                 %0 = linalg.fill … {motet.affinity = "cpu|gpu"}
    %1 = "motet.transfer"(%x) {to = "gpu"}      →      %1 = "motet.transfer"(%x) {to = "gpu"}
    %2 = arith.addf %1, %1                             %2 = arith.addf %1, %1 {motet.affinity = "gpu"}

What is as well made on several devices as moved between them keeps all of them. Of an affinity that leaves a
choice, the device is taken that most operands lie on. With `automatic`, operations of functions that say
nothing at all stay as they are: cost decides about their kernels later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, TRANSFER_OP, Affinity
from motet.compiler.placement.affinity_analysis import (
    AffinityAnalysis,
    Node,
    is_replicable,
    tensor_operands,
)
from motet.compiler.placement.default_device import default_device
from motet.compiler.placement.functions import public_functions
from motet.compiler.placement.speaking import speaks_of_devices
from motet.errors import CompileError


@dataclass(frozen=True)
class PlaceOperations:
    name = "place-operations"
    automatic: bool = False

    def run(self, module: ir.Module) -> None:
        default = default_device(module)
        if default is None:
            return
        for function in public_functions(module):
            if self.automatic and not speaks_of_devices(function):
                continue
            analysis = AffinityAnalysis(function, default)
            for node in analysis.top[:-1]:
                _check_control(node)
                chosen = node.affinity or analysis.default
                if not is_replicable(node.operation):
                    chosen = _choose(chosen, node.operation, analysis)
                if node.operation.name != TRANSFER_OP:
                    node.operation.attributes[AFFINITY] = ir.StringAttr.get(str(chosen))


def _choose(affinity: Affinity, operation: ir.Operation, analysis: AffinityAnalysis) -> Affinity:
    if affinity.device is not None:
        return affinity
    lying = Counter(
        where.device for value in tensor_operands(operation) if (where := analysis.of_value(value)) is not None
    )
    return Affinity((max(affinity.devices, key=lambda pair: lying[pair[0]]),))


def _check_control(node: Node) -> None:
    """Control flow runs on one device as a whole."""
    said: dict[str, ir.Operation] = {}
    for inner in node.inner:
        if inner.affinity is not None and (inner.explicit or inner.operation.name == TRANSFER_OP):
            said.setdefault(str(inner.affinity.devices[0][0]), inner.operation)
    if len(said) > 1:
        names = " and ".join(f"@{name}" for name in said)
        raise CompileError(
            f"{node.operation.name}: its parts are placed on {names}; expected all of a branch or loop on one device",
            locate(node.operation.location),
        )
