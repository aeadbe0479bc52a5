"""Parts of parameters, as parameters themselves, so that a device stores no more than it reads.

    %w {motet.parameter = "w"}: 8x4                  →   %a {motet.parameter = "w_part_1"}: 4x4, rows 0 to 3
    %0 = tensor.extract_slice %w[4, 0] [4, 4]            %b {motet.parameter = "w_part_2"}: 4x4, rows 4 to 7
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program, parameters_of
from motet.compiler.passes.normalise.hoist_constants import add_parameter, fresh_key

Place = tuple[str, tuple[int, ...], tuple[int, ...]]  # the key of a parameter, and the offsets and extents of a part


class ParameterParts:
    """The parts that the functions of a program read; functions share them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.keys: dict[Place, str] = {}

    def of(self, function: ir.Operation) -> FunctionParameters:
        return FunctionParameters(function, self)

    def key(self, place: Place) -> str:
        """The key of a part, which is made once."""
        if place not in self.keys:
            whole, begin, sizes = place
            known = self.program.parameters
            part = known[whole][tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))]
            self.keys[place] = key = fresh_key(f"{whole}_part", known)
            self.program.parameters = {**known, key: np.ascontiguousarray(part)}
        return self.keys[place]


class FunctionParameters:
    """The parameters of one function."""

    def __init__(self, function: ir.Operation, parts: ParameterParts) -> None:
        self.function = function
        self.parts = parts
        self.keys = parameters_of(function)
        self.values: dict[str, ir.Value] = {}

    def part(self, value: ir.Value, begin: Sequence[int], kind: ir.RankedTensorType) -> ir.Value | None:
        """A part of a parameter, as an argument of the function; None for other values."""
        if value not in self.keys:
            return None
        key = self.parts.key((self.keys[value], tuple(begin), tuple(kind.shape)))
        if key not in self.values:
            self.values[key] = made = add_parameter(self.function, kind, key, value.location)
            self.keys[made] = key
        return self.values[key]
