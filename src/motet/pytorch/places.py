"""Source locations and names of modules, in the user's Python code, of nodes of an exported graph."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import re

import torch

from motet.errors import Location

SOURCE = ("stack_trace", "nn_module_stack")  # the metadata of a node that says where it comes from
_FRAME = re.compile(r'File "(.+)", line (\d+)')


def find_place(node: torch.fx.Node, name: str) -> Location:
    """The innermost line of the user's code that `node` comes from; if unknown, as in a file of torch.export.save, the
    program, named `name`."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return Location(frames[-1][0], int(frames[-1][1])) if frames else Location(name)


def called(node: torch.fx.Node) -> str:
    """How errors name what a node calls: its operator, and the module that calls it."""
    path, operator = module_path(node), str(node.target).removesuffix(".default")
    return operator if path == node.name else f"{operator} in module {path}"


def module_path(node: torch.fx.Node) -> str:
    """The path of the module that `node` is computed in, `layer1.0.conv2`; the name of the node outside submodules."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(path) for path, *_ in reversed(stack.values()) if path), "")
    return path.removeprefix("L['self'].") or node.name
