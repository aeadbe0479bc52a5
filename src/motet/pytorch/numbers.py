"""Makes numbers in a module's buffers, such as strides of a convolution, available to torch.export.

torch.export knows the shapes and types of buffers, not their contents, and cannot trace `range(self.count)` or a pad by
`self.stride`. Buffers are constants of a compiled program; here those of one element are read as numbers.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from motet.errors import CompileError

_READ = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)


@contextmanager
def known_numbers(module: torch.nn.Module) -> Generator[None]:
    """A context in which buffers of one element are created where they are read, so that torch.export treats them as
    constants.

    Raises CompileError if one was changed.
    """
    made: list[tuple[str, Any]] = []
    held = [(each, type(each), dict(each._buffers)) for each in module.modules() if _numbers(each)]
    try:
        for each, kind, _ in held:
            readers = {name: _reader(name, value, made) for name, value in _numbers(each).items()}
            each.__class__ = type(kind.__name__, (kind,), {**readers, "__module__": kind.__module__})
            for name in readers:
                del each._buffers[name]
        yield
    finally:
        for each, kind, buffers in held:
            each.__class__ = kind
            each._buffers.clear()
            each._buffers.update(buffers)  # keeps their order
    for name, value in made:
        if value._version:
            raise CompileError(f"the module changes its buffer {name}; expected one that changes none: call eval() "
                               "before compiling, or pass what it changes as an input and return it")


def _numbers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    return {
        name: value for name, value in module._buffers.items()
        if type(value) is torch.Tensor and value.numel() == 1 and value.dtype in _READ
    }


def _reader(name: str, value: torch.Tensor, made: list[tuple[str, Any]]) -> property:
    number, dtype, device = value.tolist(), value.dtype, value.device

    def read(_: Any) -> torch.Tensor:
        made.append((name, torch.tensor(number, dtype=dtype, device=device)))
        return made[-1][1]

    return property(read)
