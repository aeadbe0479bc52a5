"""Makes torchvision importable if its library cannot be loaded.

timm needs torchvision, whose wheels in PyTorch's main registry link to CUDA. With a CPU-only PyTorch, their library
cannot be loaded, and `import torchvision` fails, because it registers functions for operators that the library
declares:

    @torch.library.register_fake("torchvision::nms")    → RuntimeError: operator torchvision::nms does not exist

No model here runs such an operator, so that a declaration without a kernel is enough.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_DESCRIBED = re.compile(r'register_fake\("torchvision::(\w+)"\)')


def declare() -> list[str]:
    """Declare the operators that torchvision registers but cannot load; returns their names."""
    import torch

    spec = find_spec("torchvision")
    if spec is None or spec.origin is None or _loads(Path(spec.origin).parent):
        return []
    described = (Path(spec.origin).parent / "_meta_registrations.py").read_text(encoding="utf-8")
    names = _DESCRIBED.findall(described)
    for name in names:
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return names


def _loads(folder: Path) -> bool:
    import torch

    try:
        for path in folder.glob("_C*.so"):
            torch.ops.load_library(path)
    except OSError:
        return False
    return True
