"""A pretrained model, from its ONNX file or from its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import motet
from motet.argument_kinds import path_of
from motet.errors import CompileError, OptionError
from motet.huggingface.configuration import read_configuration
from motet.runtime.named import check_inputs, names_of


def from_pretrained(
    folder: str | os.PathLike[str],
    *,
    file: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    dynamic_shapes: Mapping[str, Any] | None = None,
    devices: Mapping[str, str] | str | None = None,
    options: Mapping[str, str | int | bool] | None = None,
    threads: int | None = None,
) -> PretrainedModel:
    """Compile the model in a local folder: its ONNX file if it has one, else its checkpoint (config.json and
    safetensors), which needs torch and transformers.

    `file` chooses among several ONNX files. `inputs` are example tensors by name for a checkpoint, and `dynamic_shapes`
    their extents that differ between calls, as for torch.export; by default, those of models of text (batch and
    length) and images (batch). The others are those of `motet.compile` and `motet.load`. Nothing is downloaded, and
    no code of the folder is run. Raises OptionError for a folder without such a model, and CompileError.
    """
    path = path_of("folder", folder, "the path of a folder")
    if not path.is_dir():
        raise OptionError(f"{folder}: not a local folder; nothing is downloaded: hf download NAME --local-dir FOLDER")
    onnx = _onnx_file(path, file)
    if onnx is not None:
        if inputs is not None or dynamic_shapes is not None:
            raise OptionError(f"{onnx}: inputs and dynamic_shapes are of no use for an ONNX model; leave them out")
        session = motet.load(motet.compile(onnx, devices=devices, options=options), threads=threads)
        signature = _main(session).signature
        return PretrainedModel(session, names_of(signature.inputs), names_of(signature.results))
    configuration = read_configuration(path)
    if not any(path.glob("*.safetensors")):
        raise OptionError(f"{path}: it has neither an ONNX file nor weights *.safetensors; expected one of them")
    try:
        from motet.huggingface.checkpoint import load_checkpoint
    except ImportError as error:
        raise OptionError(f"{path}: checkpoints need torch and transformers ({error.name} is not installed): "
                          "pip install 'motet[huggingface]'") from None
    loaded = load_checkpoint(configuration, inputs, dynamic_shapes)
    try:
        artifact = motet.compile(loaded.module, inputs=list(loaded.examples.values()),
                                 dynamic_shapes=loaded.dynamic_shapes, devices=devices, options=options)  # fmt: skip
    except CompileError as error:
        raise CompileError(f"{path}: {' '.join(str(error).split())}") from None
    session = motet.load(artifact, threads=threads)
    return PretrainedModel(session, names_of(_main(session).signature.inputs), loaded.results)


class PretrainedModel:
    """A compiled model, called with its inputs by name; returns its results by name. `session` is the session."""

    def __init__(self, session: motet.Session, inputs: list[str], results: list[str]) -> None:
        self.session = session
        self.input_names = inputs
        self.output_names = results

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Compute the results for numpy arrays or tensors, such as a tokenizer's: `model(**tokenizer(text, …))`.
        Raises CallError for unknown and missing inputs."""
        function = _main(self.session)
        check_inputs(function.name, self.input_names, inputs)
        values = function(*(inputs[name] for name in self.input_names))
        every = values if isinstance(values, tuple) else (values,)
        return dict(zip(self.output_names, every, strict=True))


def _main(session: motet.Session) -> Any:
    return session[next(iter(session))]


def _onnx_file(folder: Path, file: str | None) -> Path | None:
    """The ONNX file of a folder: the only one, or model.onnx. Raises OptionError where one has to be chosen."""
    if file is not None:
        if not (folder / file).is_file():
            raise OptionError(f"{folder / file}: there is no such file; expected one of {_listed(folder)}")
        return folder / file
    for usual in ("model.onnx", "onnx/model.onnx"):
        if (folder / usual).is_file():
            return folder / usual
    found = _onnx_files(folder)
    if len(found) > 1:
        raise OptionError(f"{folder}: it has several ONNX files; choose one by file=: {_listed(folder)}")
    return found[0] if found else None


def _onnx_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])


def _listed(folder: Path) -> str:
    return ", ".join(path.relative_to(folder).as_posix() for path in _onnx_files(folder)) or "none"
