"""config.json of a model's folder: the class of transformers that the model is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from motet.errors import OptionError
from motet.llm.registry import FAMILIES

_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSpeechSeq2Seq")


@dataclass(frozen=True)
class Configuration:
    """The folder of a checkpoint, and the name of its class."""

    folder: Path
    architecture: str


def read_configuration(folder: Path) -> Configuration:
    """Raises OptionError for a folder without a readable config.json, and for models that generate text."""
    path = folder / "config.json"
    if not path.is_file():
        raise OptionError(f"{folder}: it has neither an ONNX file nor config.json; expected one of them")
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: not JSON: {error}") from None
    names = values.get("architectures") if isinstance(values, dict) else None
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise OptionError(f"{path}: architectures: {names!r} given; expected a list of one class of transformers")
    if names[0].endswith(_GENERATES):
        family = values.get("model_type")
        advice = (f"motet.llm.load({str(folder)!r})" if family in FAMILIES else
                  f"motet.llm.load is for the families {', '.join(FAMILIES)}; export others to ONNX")  # fmt: skip
        raise OptionError(f"{folder}: {names[0]} generates text; {advice}")
    return Configuration(folder, names[0])
