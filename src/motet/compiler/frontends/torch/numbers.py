"""lower-numbers: in the `torch` dialect, lowers functions of extents that `motet.pytorch.extents` names.

    torch.operator "torch.motet.extent_min"(%n, %k)   →   arith.minsi %n, %k
    torch.operator "torch.motet.extent_ceil"(%q)      →   arith.ceildivsi %n, %m         where %q is n/m of integers,
                                                          arith.fptosi (math.ceil %q)    else

Integer arithmetic rounds quotients of integers as Python rounds their quotient in f64, which is exact enough: it only
equals an integer if the integers' quotient does, as long as they are below 2^52.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.compiler.frontends.onnx.tensors import know_operations
from motet.compiler.frontends.torch.operands import operator_name
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index
from motet.compiler.operators.arithmetic import Floats

_PREFIX = "torch.motet.extent_"
_INTEGERS: Mapping[str, str] = {"min": "arith.minsi", "max": "arith.maxsi"}
_FLOATS: Mapping[str, str] = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf", "pow": "math.powf",
    "least": "arith.minimumf", "most": "arith.maximumf",
}  # fmt: skip
_ROUNDINGS: Mapping[str, str] = {
    "ceil": "math.ceil", "floor": "math.floor", "trunc": "math.trunc", "round": "math.roundeven",
}  # fmt: skip


def lower_numbers(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        found = [each for each in find_operations(module, "torch.operator") if operator_name(each).startswith(_PREFIX)]
        if found:
            know_operations(module)
        made: dict[ir.Value, ir.Value] = {}  # index or f64, by value of the dialect `torch`
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                result = operator.results[0]
                made[result] = _lowered(operator_name(operator).removeprefix(_PREFIX), operator, made)
                result.replace_all_uses_with(_as_torch(made[result], result.type))
        for operator in reversed(found):
            operator.erase()


def whole_number(name: str, values: Sequence[ir.Value]) -> ir.Value:
    """The minimum (`min`), maximum (`max`) or remainder (`mod`, of Python, which rounds down) of indices."""
    index = values[0].type
    if name != "mod":
        return create(_INTEGERS[name], index, values)
    whole = create("arith.floordivsi", index, values)
    return create("arith.subi", index, [values[0], create("arith.muli", index, [whole, values[1]])])


def rounded_quotient(name: str, value: ir.Value, by: ir.Value) -> ir.Value:
    """The quotient of two indices, rounded by `ceil`, `floor`, `trunc` or `round`, to the even one of two as near."""
    index = value.type
    if name != "round":
        name = {"ceil": "arith.ceildivsi", "floor": "arith.floordivsi", "trunc": "arith.divsi"}[name]
        return create(name, index, [value, by])
    two = constant_index(2)
    twice, both = (create("arith.muli", index, [each, two]) for each in (value, by))
    down = create("arith.ceildivsi", index, [create("arith.subi", index, [twice, by]), both])
    up = create("arith.floordivsi", index, [create("arith.addi", index, [twice, by]), both])
    even = create("arith.muli", index, [create("arith.ceildivsi", index, [down, two]), two])
    return create("arith.minsi", index, [up, even])


def rounded(name: str, value: ir.Value) -> ir.Value:
    """The index to which an f64 is rounded by `ceil`, `floor`, `trunc` or `round`."""
    whole = create(_ROUNDINGS[name], value.type, [value])
    wide = create("arith.fptosi", ir.IntegerType.get_signless(64), [whole])
    return create("arith.index_cast", ir.IndexType.get(), [wide])


def _lowered(name: str, operator: ir.Operation, made: Mapping[ir.Value, ir.Value]) -> ir.Value:
    if name == "float":
        return Floats(ir.F64Type.get()).of_index(_builtin(operator.operands[0], made))
    values = [_builtin(operand, made) for operand in operator.operands]
    if name in _FLOATS:
        return create(_FLOATS[name], ir.F64Type.get(), values)
    if name not in _ROUNDINGS:
        return whole_number(name, values)
    quotient = values[0].owner
    if not isinstance(quotient, ir.Block) and quotient.operation.name == "arith.divf":
        sides = [_integer(side) for side in quotient.operation.operands]
        if sides[0] is not None and sides[1] is not None:
            return rounded_quotient(name, sides[0], sides[1])
    return rounded(name, values[0])


def _integer(value: ir.Value) -> ir.Value | None:
    """The index that an f64 was made of; None for others."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name == "arith.sitofp":
        return owner.operands[0].owner.operation.operands[0]
    if owner.name == "arith.constant":
        number = ir.FloatAttr(owner.attributes["value"]).value
        return constant_index(int(number)) if number.is_integer() else None
    return None


def _builtin(value: ir.Value, made: Mapping[ir.Value, ir.Value]) -> ir.Value:
    """A number of the dialect `torch` as an index or an f64."""
    if value in made:
        return made[value]
    if str(value.type) == "!torch.int":
        return create("arith.index_cast", ir.IndexType.get(), [
            create("torch_c.to_i64", ir.IntegerType.get_signless(64), [value])
        ])  # fmt: skip
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.operation.name == "torch.constant.float":
        return create("arith.constant", ir.F64Type.get(), [], {"value": owner.operation.attributes["value"]})
    return create("torch_c.to_f64", ir.F64Type.get(), [value])


def _as_torch(value: ir.Value, kind: ir.Type) -> ir.Value:
    if isinstance(value.type, ir.IndexType):
        value = create("arith.index_cast", ir.IntegerType.get_signless(64), [value])
        return create("torch_c.from_i64", kind, [value])
    return create("torch_c.from_f64", kind, [value])
