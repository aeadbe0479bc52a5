"""place-by-name: places operations by their names in the source, such as those of an ONNX model's nodes.

    linalg.conv_2d_nchw_fchw … loc("layer4.0.conv1")    with  layer4*=gpu   →   … {motet.affinity = "gpu"} loc(…)

What an operator was written out as has its name before a slash, `gelu_2/Tanh3`, and goes with it. A pattern may be the
name of a kernel in a profile, `layer1.0.conv2 + bn2 + relu`: every name in it is one, of the module of the first if
there is such an operation. An operation without a name has its place in the source,
`model.mlir:12:8: linalg.matmul`. Affinities of the program take precedence. If several patterns match, the first one is
used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

from motet.artifact.kernels import module_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.ir.source_names import JOINED, has_work, list_computed, names_of
from motet.compiler.passes.base import ModulePass
from motet.errors import OptionError

_log = logging.getLogger("motet")
_SHOWN = 8
_LEFT_OUT = re.compile(r"\d+ more")


@dataclass(frozen=True)
class PlaceByName(ModulePass):
    """`places` are pairs of a pattern (`*`, `?` and `[…]` as in file names) and an affinity. Raises OptionError for a
    pattern that matches no operation, nor one of `gone`, the names of operators that were folded into others."""

    name = "place-by-name"
    places: tuple[tuple[str, str], ...] = ()
    gone: frozenset[str] = frozenset()

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
        named = [(operation, _names(operation)) for operation in _operations(module)]
        seen = dict.fromkeys(name for _, names in named for name in names)
        told = dict.fromkeys(name for operation, names in named if has_work(operation) for name in names)
        parts = {pattern: _parts(pattern, affinity, seen) for pattern, affinity in self.places}
        used: set[str] = set()
        for operation, names in named:
            for pattern, affinity in self.places:
                if any(_matches(name, part) for name in names for part in parts[pattern]):
                    used.add(pattern)
                    if AFFINITY not in operation.attributes:
                        operation.attributes[AFFINITY] = ir.StringAttr.get(affinity)
                    break
        for pattern, affinity in self.places:
            if pattern in used:
                continue
            if any(_matches(name, part) for name in self.gone for part in parts[pattern]):
                _log.warning("place %s=%s: no effect: folding left nothing of it to compute", pattern, affinity)
            else:
                raise OptionError(f"place {pattern}={affinity}: no operation has such a name; {_listing(told)}")


def _names(operation: ir.Operation) -> list[str]:
    """The names of an operation, and those that a kernel has that computes it."""
    return list(dict.fromkeys([*names_of(operation.location), *list_computed([operation])]))


def _parts(pattern: str, affinity: str, names: Collection[str]) -> list[str]:
    """The patterns in `pattern`, the joined names of a kernel. Raises OptionError for names that were left out."""
    first, *others = pattern.split(JOINED)
    if others and _LEFT_OUT.fullmatch(others[-1]):
        raise OptionError(f"place {pattern}={affinity}: {others[-1]} names were left out where this was shown; "
                          "expected all of them, as motet bench --profile prints them")
    module = module_of(first)
    inside = [module + other if module + other in names else other for other in others]
    return list(dict.fromkeys([pattern, first, *inside]))


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}/*")


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    """The operations of functions, without those inside others, which run with them."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                yield from (entry.operation for entry in block.operations)


def _listing(names: Collection[str]) -> str:
    if not names:
        return "operations of this program have no names"
    shown = ", ".join(list(names)[:_SHOWN])
    return f"there are: {shown}" + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
