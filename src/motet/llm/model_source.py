"""A model that is not compiled yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.llm.architecture import Architecture
from motet.llm.tensors import Tensors


@dataclass(frozen=True)
class ModelSource:
    """A model that is not compiled yet. `tensors` have the decoder's names."""

    architecture: Architecture
    tensors: Tensors
    tokenizer: Any
    template: str | None
    special: Mapping[str, str]
    is_gguf: bool = False
    notes: Sequence[str] = ()
