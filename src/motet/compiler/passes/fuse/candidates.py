"""Candidates for one kernel, and queries on the function that contains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.kernels.roles import Role, known_number, role_of


@dataclass(frozen=True)
class Triangle:
    """A constant of two values: the first where column <= row + `offset`. Rows and columns are the last two axes."""

    first: float | int
    second: float | int
    offset: int
    rows: int
    columns: int


@dataclass(frozen=True)
class OperandSource:
    """The source of an operand: result `result` of operation `node` of the candidate, a number, a triangular constant;
    otherwise a value from outside."""

    node: int = -1
    result: int = 0
    number: float | int | None = None
    triangle: Triangle | None = None


@dataclass
class Candidate:
    """`operations` in the order of the program, the last one making the result."""

    function: ir.Operation
    number: int
    operations: list[ir.Operation]
    sources: list[list[OperandSource]]


class FunctionView:
    """Queries on a function's operations before any rewriting."""

    def __init__(self, function: ir.Operation, program: Program) -> None:
        self.function = function
        self.program = program
        block = function.regions[0].blocks[0]
        self.operations = [entry.operation for entry in block.operations]
        self.position = {operation: i for i, operation in enumerate(self.operations)}
        self.roles: dict[int, Role] = {}

    def role(self, position: int) -> Role:
        if position not in self.roles:
            self.roles[position] = role_of(self.operations[position])
        return self.roles[position]

    def maker(self, value: ir.Value) -> int | None:
        """The position of the operation that defines `value`."""
        return None if isinstance(value.owner, ir.Block) else self.position.get(value.owner.operation)

    def inputs(self, position: int) -> list[ir.Value]:
        """The operands of an operation, without its accumulators."""
        operation = self.operations[position]
        operands = list(operation.operands)
        if operation.name == "linalg.generic":
            return operands[: next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))]
        return operands if operation.name == "tensor.concat" else operands[:1]

    def users(self, position: int) -> set[int]:
        return {
            self.position.get(use.owner.operation, -1)
            for result in self.operations[position].results for use in result.uses
        }

    def number(self, value: ir.Value) -> float | int | None:
        """The number that a scalar, or every element of a tensor, is known to be."""
        return known_number(value)

    def candidate(self, order: Sequence[int], number: int, triangles: bool = False) -> Candidate:
        """The operations at `order`; `triangles` says whether triangular constants are looked for."""
        index = {position: i for i, position in enumerate(order)}

        def source(value: ir.Value) -> OperandSource:
            maker = self.maker(value)
            if maker in index:
                return OperandSource(index[maker], ir.OpResult(value).result_number)
            known = self.number(value)
            return OperandSource(number=known, triangle=self.triangle(value) if triangles and known is None else None)

        return Candidate(
            self.function, number, [self.operations[p] for p in order],
            [[source(value) for value in self.inputs(p)] for p in order],
        )

    def triangle(self, value: ir.Value) -> Triangle | None:
        if not isinstance(value.owner, ir.Block) or "arg_attrs" not in self.function.attributes:
            return None
        argument = ir.BlockArgument(value).arg_number
        attributes = ir.DictAttr(ir.ArrayAttr(self.function.attributes["arg_attrs"])[argument])
        if PARAMETER not in attributes:
            return None
        return triangular(self.program.parameters[ir.StringAttr(attributes[PARAMETER]).value])


def triangular(array: np.ndarray) -> Triangle | None:
    """The description of `array` if it holds one value up to a diagonal and another one after it; None otherwise."""
    if array.ndim < 2 or array.dtype.kind in "iuc" or min(array.shape[-2:]) < 2:
        return None
    if array.size != np.prod(array.shape[-2:]):
        return None
    flat = array.reshape(array.shape[-2:])
    first, second = flat[-1, 0], flat[0, -1]
    seen = flat[0] == first
    offset = int(seen.sum()) - 1
    if not np.array_equal(flat, np.where(np.tri(*flat.shape, offset, dtype=bool), first, second)) or first == second:
        return None
    rows, columns = array.shape[-2], array.shape[-1]
    return Triangle(first.item(), second.item(), offset, rows, columns)
