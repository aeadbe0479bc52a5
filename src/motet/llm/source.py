"""Where a model comes from: a folder in Hugging Face's layout, or a GGUF file."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from motet.errors import OptionError
from motet.llm.architecture import Architecture, read_config
from motet.llm.checkpoint import read_weights
from motet.llm.gguf_file import open_gguf
from motet.llm.model_source import ModelSource
from motet.llm.registry import find_family


def open_source(path: Path) -> ModelSource:
    """The model at `path`. Raises OptionError if there is none that is supported."""
    if path.is_file():
        return open_gguf(path)
    if not path.exists():
        raise OptionError(f"{path}: not found; expected a model's folder in Hugging Face's layout, or a GGUF file")
    config = read_config(path)
    family = find_family(config)
    architecture = family.read(config)
    tensors = family.tensors(config, read_weights(path))
    tokenizer = _tokenizer(path, architecture)
    settings = _settings(path / "tokenizer_config.json")
    template = settings.get("chat_template")
    file = path / "chat_template.jinja"
    if file.exists():
        template = file.read_text(encoding="utf-8")
    special = {key: text for key in ("bos_token", "eos_token") if (text := _text(settings.get(key))) is not None}
    return ModelSource(architecture, tensors, tokenizer, template if isinstance(template, str) else None, special)


def _settings(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path}: it is not JSON: {error}; expected a tokenizer's configuration") from None
    return values if isinstance(values, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else value.get("content") if isinstance(value, dict) else None


def _tokenizer(folder: Path, architecture: Architecture) -> Any:
    """The tokenizer of the folder, None if it has none. Raises OptionError if it does not fit the vocabulary."""
    file = folder / "tokenizer.json"
    if not file.exists():
        return None
    try:
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    except ModuleNotFoundError:
        raise OptionError(f"{file}: needs tokenizers; pip install 'motet[llm]'") from None
    except Exception as error:  # the library raises bare exceptions
        raise OptionError(f"{file}: cannot be read: {error}; expected a file of tokenizers") from None
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= architecture.vocabulary:
        raise OptionError(f"{file}: its largest token is {largest}; the model's vocabulary has "
                          f"{architecture.vocabulary}")
    return tokenizer
