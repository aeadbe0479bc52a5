"""The known families of models. `read` makes an `Architecture` of a config.json, `tensors` gives the
weights of a checkpoint the names that the decoder reads."""

from __future__ import annotations

from typing import Protocol

from motet.errors import OptionError
from motet.llm.architecture import Architecture, Config
from motet.llm.families import (
    gemma,
    gemma2,
    gemma3,
    gpt2,
    llama,
    mistral,
    mixtral,
    phi,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
)
from motet.llm.tensors import Tensors


class ModelFamily(Protocol):
    """What a module of a family has."""

    def read(self, config: Config) -> Architecture: ...

    def tensors(self, config: Config, weights: Tensors) -> Tensors: ...


FAMILIES: dict[str, ModelFamily] = {
    "gemma": gemma, "gemma2": gemma2, "gemma3": gemma3, "gemma3_text": gemma3, "gpt2": gpt2, "llama": llama,
    "mistral": mistral, "mixtral": mixtral, "phi": phi, "phi3": phi3, "qwen2": qwen2, "qwen2_moe": qwen2_moe,
    "qwen3": qwen3, "qwen3_moe": qwen3_moe,
}


def find_family(config: Config) -> ModelFamily:
    """The family of `config`. Raises OptionError, with the known ones, for an unknown one."""
    family = config.values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise OptionError(f"{config.path}: model_type: {family!r} is not known; expected one of {', '.join(FAMILIES)}")
    return FAMILIES[family]
