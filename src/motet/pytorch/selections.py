"""Makes selections by a number that is read from a tensor selections by the tensor.

    %n = aten._local_scalar_dense(%i)             %line = aten.reshape(%i, [1])
    %y = aten.select.int(%x, 1, %n)         →     %part = aten.index.Tensor(%x, [None, %line])
                                                  %y = aten.select.int(%part, 1, 0)

torch.export writes the first form for `x[:, i]` with a tensor `i` of rank 0: no extent depends on its number, but the
place in memory of a view does, and compiled programs have no such views. It cannot trace `x[i] = y` and
`x[i, indices]`, which IndexByTensors makes operators on tensors.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from motet.pytorch.places import SOURCE

_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def select_by_tensors(graph: fx.Graph) -> bool:
    """Rewrites the graph in place. Returns whether it changed; values of nodes are then to be computed again."""
    aten, changed = torch.ops.aten, False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not aten.select.int or not _is_read(node.args[2]):
            continue
        x, dim, number = node.args
        before = [None] * (dim % x.meta["val"].ndim)
        with graph.inserting_before(node):
            line = graph.call_function(aten.reshape.default, (number.args[0], [1]))
            part = graph.call_function(aten.index.Tensor, (x, [*before, line]))
        source = {key: node.meta[key] for key in SOURCE if key in node.meta}
        line.meta.update(source)
        part.meta.update(source)
        node.args = (part, dim, 0)
        if not number.users:
            graph.erase_node(number)
        changed = True
    return changed


def _is_read(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.target in _READS


class IndexByTensors(TorchFunctionMode):
    """While it lasts, indexing by integer tensors of rank 0 reads no number from them."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        indexing = _INDEXING.get(getattr(func, "__name__", ""))
        if indexing is not None and isinstance(args[0], torch.Tensor):
            items = list(args[1]) if isinstance(args[1], tuple) else [args[1]]
            place = next((place for place, item in enumerate(items) if _is_index(item)), None)
            if place is not None:
                with self:
                    return indexing(args[0], items, place, *args[2:])
        return func(*args, **(kwargs or {}))


def _read(x: Any, items: list[Any], place: int) -> Any:
    at = [*_before(x, items, place), items[place].reshape(1)]
    return torch.ops.aten.index.Tensor(x, at)[_with_first(items, place)]


def _write(x: Any, items: list[Any], place: int, values: Any) -> None:
    at = [*_before(x, items, place), items[place].reshape(1)]
    part = torch.ops.aten.index.Tensor(x, at)
    part[_with_first(items, place)] = values
    torch.ops.aten.index_put_.default(x, at, part)


_INDEXING: dict[str, Callable[..., Any]] = {"__getitem__": _read, "__setitem__": _write}


def _is_index(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in _INTEGERS


def _before(x: Any, items: list[Any], place: int) -> list[None]:
    """One None for each dimension of `x` before the one that `items[place]` selects from."""
    counts = [_dimensions(item) for item in items]
    rest = x.ndim - sum(counts)
    pairs = zip(items[:place], counts[:place], strict=True)
    return [None] * sum(rest if item is Ellipsis else count for item, count in pairs)


def _dimensions(item: Any) -> int:
    """How many dimensions an item of an index takes; none for an ellipsis."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8) else 1


def _with_first(items: list[Any], place: int) -> tuple[Any, ...]:
    return (*items[:place], 0, *items[place + 1 :])
