"""settle-undefined: replaces undefined values, which no buffer can be made for, by ones that are defined.

    %0 = ub.poison : tensor<4xf32>     →    %0 = tensor.empty() : tensor<4xf32>
    %1 = ub.poison : index             →    %1 = arith.constant 0 : index
    %2 = ub.poison : tensor<?xf32>     →    %x, an argument of this type, or else an empty tensor of no elements

Upstream's `lift-cf-to-scf` passes them on where a branch or the start of a loop has no value yet; no operation that is
executed reads one. rotate-loops and select-branches run before, and drop most of them. An argument is preferred
for dynamic extents, because a loop is compiled only if its extents follow from those of the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass

POISON = "ub.poison"


@dataclass(frozen=True)
class SettleUndefined(ModulePass):
    name = "settle-undefined"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            settle_undefined(function)


def settle_undefined(function: ir.Operation) -> None:
    """Replaces the undefined values of one function, in place."""
    arguments = list(function.regions[0].blocks[0].arguments)
    for operation in [each for each in all_operations(function) if each.name == POISON]:
        [value] = operation.results
        if any(value.uses):
            same = next((argument for argument in arguments if argument.type == value.type), None)
            value.replace_all_uses_with(_defined(operation, value.type, same))
        operation.erase()


def is_undefined(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == POISON


def _defined(place: ir.Operation, kind: ir.Type, argument: ir.Value | None) -> ir.Value:
    """A value of type `kind` before `place`."""
    with ir.InsertionPoint(place), place.location:
        if not isinstance(kind, ir.RankedTensorType):
            return _zero(kind)
        if kind.has_static_shape:
            return ir.Operation.create("tensor.empty", results=[kind]).results[0]
        if argument is not None:
            return argument
        none = _zero(ir.IndexType.get())
        dynamic = sum(kind.is_dynamic_dim(axis) for axis in range(kind.rank))
        return ir.Operation.create("tensor.empty", results=[kind], operands=[none] * dynamic).results[0]


def _zero(kind: ir.Type) -> ir.Value:
    name = "complex.constant" if isinstance(kind, ir.ComplexType) else "arith.constant"
    return ir.Operation.create(name, results=[kind], attributes={"value": zero_attribute(kind)}).results[0]
