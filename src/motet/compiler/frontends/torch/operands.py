"""Finds operators of PyTorch, known to torch-mlir or not, and reads the constants among their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from motet.compiler.frontends.onnx.tensors import know_operations
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations

Rule = Callable[[ir.Operation], None]  # rewrites an operator, before which it inserts, or leaves it


def operators(module: ir.Module, *names: str) -> list[ir.Operation]:
    """The calls of the operators `names`, such as `torch.aten.grid_sampler_2d`, known to torch-mlir or not."""
    found = find_operations(module, *names, "torch.operator")
    unknown = [each for each in found if each.name == "torch.operator" and operator_name(each) in names]
    return [each for each in found if each.name in names] + unknown


def lower_operators(module: ir.Module, rules: Mapping[str, Rule]) -> None:
    """Rewrites the calls of operators that have a rule in place."""
    with module.context:
        found = operators(module, *rules)
        if found:
            know_operations(module)
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                rules[operator_name(operator)](operator)


def operator_name(operator: ir.Operation) -> str:
    """The name of an operator, also if torch-mlir does not know it."""
    return ir.StringAttr(operator.attributes["name"]).value if operator.name == "torch.operator" else operator.name


def constant(value: ir.Value) -> int | float | bool | str | None:
    """The constant that `value` is; None for the constant None. Raises ValueError for values of the program."""
    owner = value.owner
    if isinstance(owner, ir.Block) or not owner.operation.name.startswith("torch.constant."):
        raise ValueError("expected a constant")
    if owner.operation.name == "torch.constant.none":
        return None
    attribute = owner.operation.attributes["value"]
    match owner.operation.name.removeprefix("torch.constant."):
        case "int":
            return ir.IntegerAttr(attribute).value
        case "float":
            return ir.FloatAttr(attribute).value
        case "bool":
            return ir.BoolAttr(attribute).value
        case _:
            return ir.StringAttr(attribute).value


def is_none(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "torch.constant.none"


def integer(value: ir.Value) -> int:
    found = constant(value)
    if not isinstance(found, int):
        raise ValueError("expected an integer")
    return found


def number(value: ir.Value) -> float:
    found = constant(value)
    if not isinstance(found, int | float):
        raise ValueError("expected a number")
    return float(found)


def numbers(value: ir.Value) -> list[float]:
    """The numbers of a list."""
    return [number(element) for element in elements(value)]


def integers(value: ir.Value) -> list[int]:
    """The integers of a list."""
    return [integer(element) for element in elements(value)]


def known_integer(value: ir.Value) -> int | None:
    """The integer that `value` is; None for values of the program."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "torch.constant.int":
        return None
    return ir.IntegerAttr(owner.operation.attributes["value"]).value


def known_integers(value: ir.Value) -> list[int] | None:
    """The integers of a list; None if one is a value of the program."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "torch.prim.ListConstruct":
        return None
    found = [known_integer(element) for element in owner.operation.operands]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def new_integer(number: int) -> ir.Value:
    """A constant, at the current insertion point."""
    value = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    return create("torch.constant.int", ir.Type.parse("!torch.int"), [], {"value": value})


def new_list(integers: Sequence[ir.Value]) -> ir.Value:
    """A list of integers, at the current insertion point."""
    return create("torch.prim.ListConstruct", ir.Type.parse("!torch.list<int>"), integers)


def new_extent(tensor: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor of the dialect `torch`, at the current insertion point."""
    return create("torch.aten.size.int", ir.Type.parse("!torch.int"), [tensor, new_integer(axis)])


def elements(value: ir.Value) -> list[ir.Value]:
    """The elements of a list. Raises ValueError for other values."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "torch.prim.ListConstruct":
        raise ValueError("expected a list")
    return list(owner.operation.operands)
