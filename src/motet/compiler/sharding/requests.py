"""Shardings that a user gives: `layers.*.q=model:1` divides dimension 1 of the tensors with such names over `model`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from motet.compiler.ir.shardings import DeviceMesh, TensorSharding
from motet.errors import OptionError


@dataclass(frozen=True)
class ShardRequest:
    """`axes` are pairs of an axis and a dimension; negative ones count from the last."""

    text: str
    pattern: str
    axes: tuple[tuple[str, int], ...]

    def sharding(self, rank: int, mesh: DeviceMesh, name: str) -> TensorSharding:
        """The sharding of a tensor. Raises OptionError for axes or dimensions that are not there."""
        found: list[list[str]] = [[] for _ in range(rank)]
        for axis, dimension in self.axes:
            if axis not in mesh.names:
                raise OptionError(f"--shard {self.text}: axis {axis} is not of the mesh {mesh}; available: "
                                  f"{', '.join(mesh.names)}")
            if not -rank <= dimension < rank:
                raise OptionError(f"--shard {self.text}: dimension {dimension} of {name}, which has {rank}; expected "
                                  f"{-rank} to {rank - 1}")
            found[dimension].append(axis)
        return TensorSharding(tuple(map(tuple, found)))


def parse_request(text: str) -> ShardRequest:
    """Parses `PATTERN=AXIS:DIMENSION,…`; nothing after the = asks for a copy on each device. Raises OptionError."""
    pattern, equals, rest = text.rpartition("=")
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    matches = [re.fullmatch(r"([A-Za-z_][\w.\-]*):(-?\d+)", part) for part in parts]
    if not equals or not pattern or not all(matches):
        raise OptionError(f"--shard {text}: expected NAME=AXIS:DIMENSION,…, such as 'layers.*.q=model:1'; names may "
                          "have * and ?")
    return ShardRequest(text, pattern, tuple((match[1], int(match[2])) for match in matches if match))
