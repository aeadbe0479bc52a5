"""Source locations and names of modules, in the user's Python code, of nodes of an exported graph."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import re
from collections.abc import Collection

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


def source_names(node: torch.fx.Node, inner: Collection[str]) -> list[str]:
    """The names of the operation that a node becomes, the most precise first. One that stands in the code of a module
    which calls others, of the paths `inner`, or of the user's module with a number for a name, has its operator after
    the module's path, `layer1.0.relu`."""
    path, operator = module_path(node), str(node.target).partition(".")[2].partition(".")[0].strip("_")
    if path == node.name or not operator or not (path in inner or _is_own_and_numbered(node, path)):
        return [path]
    return [f"{path}.{operator}", path]


def paths_with_submodules(graph: torch.fx.Graph) -> set[str]:
    """The paths of modules within which the nodes of other modules are."""
    stacks = [node.meta.get("nn_module_stack") or {} for node in graph.nodes]
    outer = (str(path) for stack in stacks for path, *_ in list(stack.values())[:-1] if path)
    return {path.removeprefix("L['self'].") for path in outer}


def _is_own_and_numbered(node: torch.fx.Node, path: str) -> bool:
    """Whether the module of a node is of a class of the user's, and has a number for a name, as within Sequential."""
    kind = list(node.meta["nn_module_stack"].values())[-1][1]
    name = kind if isinstance(kind, str) else kind.__module__
    return path.rpartition(".")[2].isdigit() and not name.startswith("torch.nn.")


def module_path(node: torch.fx.Node) -> str:
    """The path of the module that `node` is computed in, `layer1.0.conv2`; the name of the node outside submodules."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(path) for path, *_ in reversed(stack.values()) if path), "")
    return path.removeprefix("L['self'].") or node.name
