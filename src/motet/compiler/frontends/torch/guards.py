"""Asserts, where a function begins, the conditions on extents under which a program of torch.export is right.

    extent_0_1 % 2 == 0    →    %d = tensor.dim %arg0, 1; cf.assert (%d rem 2 eq 0), "a guard of torch.export is …"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add, and_, mul, or_, sub, truediv

from motet.compiler.frontends.torch.numbers import rounded, rounded_quotient, whole_number
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.program import OF_EXTENTS
from motet.compiler.ir.sizes import constant_index, extent_of, on_indices
from motet.compiler.operators.arithmetic import Floats, Real, Truth
from motet.errors import CompileError, Location
from motet.pytorch.interface import Guard

_NUMBERS: Mapping[type[ast.operator], str] = {
    ast.Add: "arith.addi", ast.Sub: "arith.subi", ast.Mult: "arith.muli", ast.FloorDiv: "arith.floordivsi",
}
_COMPARED: Mapping[type[ast.cmpop], int] = {
    ast.Eq: 0, ast.NotEq: 1, ast.Lt: 2, ast.LtE: 3, ast.Gt: 4, ast.GtE: 5,
}  # to predicates of arith.cmpi
_REALS: Mapping[type[ast.operator], Callable[[Real, Real], Real]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv,
}
_EXTREMES, _ROUNDED = ("max", "min"), ("ceil", "floor", "trunc", "round")
_EXTENT = re.compile(r"extent_(\d+)_(\d+)")


def assert_guards(function: ir.Operation, guards: Sequence[Guard], file: str) -> None:
    """Raises CompileError for a guard with an operator that has no counterpart."""
    block = function.regions[0].blocks[0]
    with function.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
        for guard in guards:
            try:
                condition = _Condition(block).boolean(ast.parse(guard.condition, mode="eval").body)
            except _Unknown as unknown:
                raise CompileError(
                    f"a guard of torch.export cannot be checked in calls: {guard.text} ({unknown})", Location(file)
                ) from None
            said = f"the program was exported for inputs with {guard.text}"
            attributes = {"msg": ir.StringAttr.get(said), OF_EXTENTS: ir.UnitAttr.get()}
            ir.Operation.create("cf.assert", operands=[condition], attributes=attributes)


class _Unknown(Exception):
    """Syntax that is not translated."""


class _Condition:
    """Creates the operations of a condition at the current insertion point."""

    def __init__(self, block: ir.Block) -> None:
        self._arguments = block.arguments

    def boolean(self, node: ast.expr) -> Truth:
        if isinstance(node, ast.BoolOp):
            return reduce(and_ if isinstance(node.op, ast.And) else or_, [self.boolean(each) for each in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.boolean(node.operand)
        if isinstance(node, ast.Compare):
            sides = [self.number(side) for side in (node.left, *node.comparators)]
            parts = [
                self._compared(operator, left, right)
                for operator, left, right in zip(node.ops, sides, sides[1:], strict=False)
            ]
            return reduce(and_, parts)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return Truth.of(node.value)
        raise _Unknown(ast.unparse(node))

    def number(self, node: ast.expr) -> ir.Value:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return constant_index(node.value)
        if isinstance(node, ast.Name) and (found := _EXTENT.fullmatch(node.id)):
            return extent_of(self._arguments[int(found[1])], int(found[2]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return on_indices("arith.subi", constant_index(0), self.number(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
            return on_indices(_NUMBERS[type(node.op)], self.number(node.left), self.number(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return whole_number("mod", [self.number(node.left), self.number(node.right)])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            times = node.right.value
            if isinstance(times, int) and times > 0:
                base = self.number(node.left)
                return reduce(partial(on_indices, "arith.muli"), [base] * times)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).lower().removeprefix("math.")
            if name in _EXTREMES:
                values = [self.number(each) for each in node.args]
                return reduce(lambda left, right: whole_number(name, [left, right]), values)
            quotient = node.args[0] if node.args else None
            if name in _ROUNDED and isinstance(quotient, ast.BinOp) and isinstance(quotient.op, ast.Div):
                return rounded_quotient(name, self.number(quotient.left), self.number(quotient.right))
            if name in _ROUNDED and quotient is not None:
                return rounded(name, self.real(quotient))
        raise _Unknown(ast.unparse(node))

    def real(self, node: ast.expr) -> Real:
        """A number in f64."""
        f = Floats(ir.F64Type.get())
        if isinstance(node, ast.Constant) and type(node.value) is float:
            return f.of(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _REALS:
            return _REALS[type(node.op)](self.real(node.left), self.real(node.right))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.sym_float":
            node = node.args[0]
        return f.of_index(self.number(node))

    def _compared(self, operator: ast.cmpop, left: ir.Value, right: ir.Value) -> Truth:
        if type(operator) not in _COMPARED:
            raise _Unknown(type(operator).__name__)
        predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _COMPARED[type(operator)])
        return Truth(create("arith.cmpi", ir.IntegerType.get_signless(1), [left, right], {"predicate": predicate}))
