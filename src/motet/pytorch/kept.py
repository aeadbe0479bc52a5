"""Keeps operators whole, which PyTorch decomposes whenever it traces them: recurrent layers and resizing."""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from motet.pytorch import recurrences, resizing

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


@contextmanager
def keep_whole() -> Generator[None]:
    """While it lasts, torch.export and torch.compile trace these operators as the operators of `motet` that stand for
    them, also where they only need the extents of results, so that the steps of recurrent layers may be dynamic."""
    before: list[tuple[Any, Any, Any]] = []
    try:
        for operator, made in (recurrences.decompositions() | resizing.decompositions()).items():
            for key in _KEYS:
                if key in operator.py_kernels:
                    before.append((operator, key, operator.py_kernels[key]))
                    operator.py_kernels[key] = made
                    operator._dispatch_cache.clear()
        yield
    finally:
        for operator, key, made in before:
            operator.py_kernels[key] = made
            operator._dispatch_cache.clear()
