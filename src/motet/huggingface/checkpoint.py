"""Checkpoints of transformers as modules for the compiler: tensors in, tensors out, with examples of inputs."""

# torch and transformers need not be installed, and much of them has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from motet.errors import OptionError
from motet.huggingface.configuration import Configuration


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A module that takes `examples` in order and returns tensors named `results`."""

    module: torch.nn.Module
    examples: dict[str, Any]
    dynamic_shapes: Any
    results: list[str]


def load_checkpoint(
    configuration: Configuration, inputs: Mapping[str, Any] | None, dynamic_shapes: Mapping[str, Any] | None
) -> LoadedCheckpoint:
    """Raises OptionError for a checkpoint that transformers does not load, and for inputs that do not fit."""
    folder, name = configuration.folder, configuration.architecture
    try:
        kind = getattr(transformers, name, None)
    except Exception as error:  # transformers imports it now, with all that it needs
        why = str(error).strip().partition("\n")[0]
        raise OptionError(f"{folder}: transformers cannot import {name}: {why}") from None
    if kind is None:
        raise OptionError(f"{folder}: architectures: transformers {transformers.__version__} has no {name}")
    try:
        model = kind.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    except Exception as error:  # transformers, safetensors and torch raise many kinds
        why = str(error).strip().partition("\n")[0]
        raise OptionError(f"{folder}: {name} cannot be loaded: {type(error).__name__}: {why}") from None
    if inputs is None:
        if dynamic_shapes is not None:
            raise OptionError("dynamic_shapes: given without inputs; expected both")
        examples, extents = _usual_inputs(model, name)
    else:
        examples = {key: torch.as_tensor(value) for key, value in inputs.items()}
        extents = dict(dynamic_shapes or {})
    known = inspect.signature(model.forward).parameters
    for given in (*examples, *extents):
        if given not in known:
            raise OptionError(f"inputs: {name} has no input {given!r}; expected some of {', '.join(known)}")
    module = _Tensors(model, list(examples))
    with torch.no_grad():
        try:
            results = list(_named(model(**examples, return_dict=True)))
        except Exception as error:  # the model's own code
            why = str(error).strip().partition("\n")[0]
            raise OptionError(f"inputs: {name} refuses the examples: {type(error).__name__}: {why}") from None
    shapes = {key: extents.get(key) for key in examples} if extents else None
    return LoadedCheckpoint(module, examples, shapes, results)


class _Tensors(torch.nn.Module):
    """A model of transformers with tensors in order as inputs and results."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model = model

        def forward(*tensors: Any) -> tuple[Any, ...]:
            named = dict(zip(names, tensors, strict=True))
            return tuple(_named(model(**named, return_dict=True)).values())

        # torch.export names the inputs of the program after these parameters.
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        forward.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        self.forward = forward


def _named(output: Any) -> dict[str, Any]:
    """The tensors of an output by name; those of a tuple have numbers: `hidden_states.0`."""
    found: dict[str, Any] = {}
    for name, value in output.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (tuple, list)):
            found.update({f"{name}.{at}": one for at, one in enumerate(value) if isinstance(one, torch.Tensor)})
    return found


def _usual_inputs(model: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Examples and dynamic extents for models of text and of images."""
    config, known = model.config, inspect.signature(model.forward).parameters
    batch = torch.export.Dim("batch")
    if model.main_input_name == "input_ids":
        most = getattr(config, "max_position_embeddings", None)
        length = torch.export.Dim("length", max=most) if isinstance(most, int) else torch.export.Dim("length")
        names = ["input_ids", "attention_mask"]
        if "token_type_ids" in known and getattr(config, "type_vocab_size", 0) > 1:
            names.append("token_type_ids")
        ones = torch.ones((2, min(8, most or 8)), dtype=torch.int64)
        # separate tensors: torch.export takes one given twice as one input
        examples = {each: torch.full_like(ones, each != "token_type_ids") for each in names}
        return examples, {each: {0: batch, 1: length} for each in names}
    size = getattr(config, "image_size", None)
    if model.main_input_name == "pixel_values" and isinstance(size, (int, list, tuple)):
        height, width = (size, size) if isinstance(size, int) else size
        pixels = torch.zeros((2, getattr(config, "num_channels", 3), height, width))
        return {"pixel_values": pixels}, {"pixel_values": {0: batch}}
    raise OptionError(f"inputs: {name} takes {model.main_input_name}, of unknown extents; expected "
                      f"inputs={{{model.main_input_name!r}: an example}}")
