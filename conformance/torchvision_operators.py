"""Makes torchvision importable where its library cannot be loaded. Processes of the frameworks' environment import it.

timm needs torchvision, whose wheels in PyTorch's main registry link to CUDA. With a CPU-only PyTorch, their library
cannot be loaded, and `import torchvision` fails, because it registers functions for operators that the library
declares:

    @torch.library.register_fake("torchvision::nms")    → RuntimeError: operator torchvision::nms does not exist

They are declared before that, without kernels: calling them still fails. torch is not imported before torchvision is.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

import re
import sys
from collections.abc import Sequence
from pathlib import Path

_DESCRIBED = re.compile(r'register_fake\("torchvision::(\w+)"\)')


class DeclaresOperators:
    """Finds no module; declares the operators when torchvision looks for the module that registers functions for
    them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name != "torchvision._meta_registrations" or path is None:
            return
        import torch
        from torchvision import extension

        if not extension._has_ops():
            for operator in _DESCRIBED.findall(Path(path[0], "_meta_registrations.py").read_text(encoding="utf-8")):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{operator}", schema)


sys.meta_path.insert(0, DeclaresOperators)
