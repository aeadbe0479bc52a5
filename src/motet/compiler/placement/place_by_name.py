"""place-by-name: places operations by their names in the source, such as those of an ONNX model's nodes.

    linalg.conv_2d_nchw_fchw … loc("layer4.0.conv1")    with  layer4*=gpu   →   … {motet.affinity = "gpu"} loc(…)

Affinities of the program take precedence. If several patterns match, the first one is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.ir.source_names import names_of
from motet.compiler.passes.base import ModulePass
from motet.errors import OptionError

_SHOWN = 8


@dataclass(frozen=True)
class PlaceByName(ModulePass):
    """`places` are pairs of a pattern (`*`, `?` and `[…]` as in file names) and an affinity. Raises OptionError for a
    pattern that matches no operation."""

    name = "place-by-name"
    places: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, options: str) -> Self:
        """The options are `PATTERN=AFFINITY`, separated by spaces. Raises OptionError."""
        found = [word.partition("=") for word in options.split()]
        if wrong := [pattern for pattern, _, affinity in found if not affinity]:
            raise OptionError(f"pass {cls.name}: option {wrong[0]}: expected PATTERN=DEVICE")
        return cls(tuple((pattern, affinity) for pattern, _, affinity in found))

    def run(self, module: ir.Module) -> None:
        if not self.places:
            return
        used: set[str] = set()
        seen: dict[str, None] = {}
        for operation in _operations(module):
            names = list(names_of(operation.location))
            seen.update(dict.fromkeys(names))
            for pattern, affinity in self.places:
                if any(fnmatchcase(name, pattern) for name in names):
                    used.add(pattern)
                    if AFFINITY not in operation.attributes:
                        operation.attributes[AFFINITY] = ir.StringAttr.get(affinity)
                    break
        for pattern, affinity in self.places:
            if pattern not in used:
                raise OptionError(f"place {pattern}={affinity}: no operation has such a name; {_listing(seen)}")


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    """The operations of functions, without those inside others, which run with them."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                yield from (entry.operation for entry in block.operations)


def _listing(names: Sequence[str] | dict[str, None]) -> str:
    if not names:
        return "operations of this program have no names"
    shown = ", ".join(list(names)[:_SHOWN])
    return f"there are: {shown}" + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
