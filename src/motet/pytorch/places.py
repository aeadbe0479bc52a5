"""Source locations, in the user's Python code, of nodes of an exported graph."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import re

import torch

from motet.errors import Location

_FRAME = re.compile(r'File "(.+)", line (\d+)')


def find_place(node: torch.fx.Node, name: str) -> Location:
    """The innermost line of the user's code that `node` comes from; if unknown, as in a file of torch.export.save, the
    program, named `name`."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return Location(frames[-1][0], int(frames[-1][1])) if frames else Location(name)
