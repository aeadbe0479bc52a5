"""Names of the devices of a mesh, in flags and bindings.

    grid[2x2]=riscv:qemu?harts=1     →     grid_0_0=riscv:qemu?harts=1      grid_0_1=riscv:qemu/1?harts=1
                                           grid_1_0=riscv:qemu/2?harts=1    grid_1_1=riscv:qemu/3?harts=1
    grid[4]=riscv                    →     grid_0=riscv, …: for each, the first that is free

A program names a node, its processors and its memory, by `@grid_0_1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod

from motet.errors import OptionError

MOST = 64  # nodes
_MESH = re.compile(r"""\s*(["']?)([A-Za-z_$][\w$.-]*)\[(\d+(?:x\d+)*)\]\s*=(.*)""", re.DOTALL)
_NODE = re.compile(r"([A-Za-z_][\w.-]*:[\w.-]+)((?:\?.*)?)")


def nodes_of(text: str) -> Iterator[str]:
    """The flags of the nodes of a mesh; `text` itself if it names none. Raises OptionError for a mesh without nodes or
    of too many, and for devices that cannot be numbered."""
    match = _MESH.fullmatch(text)
    if match is None:
        yield text
        return
    quote, name, shape, value = match.groups()
    value = value.strip().removesuffix(quote) if quote else value.strip()
    extents = [int(extent) for extent in shape.split("x")]
    if not 1 <= prod(extents) <= MOST:
        raise OptionError(f"device '{text}': a mesh of {prod(extents)} nodes; expected 1 to {MOST}")
    node = _NODE.fullmatch(value)
    if node is None and (":" in value or "/" in value or not value):
        raise OptionError(f"device '{text}': {value or 'no device'} cannot be numbered; expected a family, or a device "
                          "of which there are several, as riscv:qemu?harts=1")
    for number, place in enumerate(product(*map(range, extents))):
        named = "_".join([name, *map(str, place)])
        yield f"{named}={value if node is None else node[1] + (f'/{number}' if number else '') + node[2]}"
