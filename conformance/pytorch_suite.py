"""The PyTorch architectures of `pytorch.py` as a suite."""

from __future__ import annotations

import functools
from typing import Any

from conformance import pytorch
from conformance.verdicts import raise_for


@functools.cache
def _architectures() -> dict[str, Any]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    return {case.name: case for case in pytorch.architectures()}


def cases(suite: str) -> list[str]:
    """The names of the architectures."""
    return list(_architectures())


def check(suite: str, case: str) -> None:
    """Compile and run a case."""
    raise_for(*pytorch.check(_architectures()[case]))
