"""Compiled models of onnxruntime: nodes EPContext, each with the artifact of a part, in the node or in a file next to
the model."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from motet.artifact.reader import Artifact
from motet.errors import ArtifactError
from motet.onnxruntime.provider.attributes import AttributeKind, NodeAttributes, Value
from motet.onnxruntime.provider.interface import OnnxruntimeApi
from motet.version import VERSION

NAME = "MotetExecutionProvider"
OPERATOR = ("com.microsoft", "EPContext")


@dataclass(frozen=True)
class ContextSettings:
    """Whether a session writes a compiled model, where, and whether artifacts are embedded in it."""

    is_written: bool
    file: str
    embeds: bool

    @staticmethod
    def of(entries: Mapping[str, str]) -> ContextSettings:
        """The settings in a session's configuration."""
        return ContextSettings(entries.get("ep.context_enable") == "1", entries.get("ep.context_file_path", ""),
                               entries.get("ep.context_embed_mode", "0") == "1")  # fmt: skip

    def path(self, model: str) -> Path:
        """The compiled model's file; by onnxruntime's rule, MODEL_ctx.onnx next to the model MODEL.onnx."""
        if self.file:
            return Path(self.file)
        source = Path(model or "model.onnx")
        return source.with_name(f"{source.stem}_ctx.onnx")


def is_own(attributes: Mapping[str, Value]) -> bool:
    """Whether a node EPContext was written by this provider."""
    return attributes.get("source") == NAME.encode()


def write_context(
    api: OnnxruntimeApi, settings: ContextSettings, model: str, name: str, names: tuple[Sequence[str], Sequence[str]],
    artifact: Artifact,
) -> int:
    """A new node EPContext for a part called `name`, with its inputs' and outputs' names. Its artifact is written to a
    file unless it is embedded. Returns the node's address; onnxruntime owns it."""
    content = bytes(artifact.data)
    if not settings.embeds:
        path = settings.path(model)
        file = path.with_name(f"{path.stem}_{name}.motet")
        path.parent.mkdir(parents=True, exist_ok=True)
        artifact.save(file)
        content = file.name.encode()
    values: dict[str, int | bytes] = {
        "main_context": 1, "embed_mode": int(settings.embeds), "ep_cache_context": content, "source": NAME.encode(),
        "partition_name": name.encode(), "ep_sdk_version": VERSION.encode(),
    }
    attributes = [_attribute(api, key, value) for key, value in values.items()]
    inputs, outputs = (_texts(each) for each in names)
    return api.pointer(  # which releases the attributes
        "CreateNode", OPERATOR[1].encode(), OPERATOR[0].encode(), name.encode(), inputs, len(inputs), outputs,
        len(outputs), (ctypes.c_void_p * len(attributes))(*attributes), len(attributes),
    )


def read_context(api: OnnxruntimeApi, graph: int, node: int) -> Artifact:
    """The artifact of a node EPContext. Raises ArtifactError if its file is missing or damaged."""
    attributes = NodeAttributes(api).plain(node)
    content = attributes.get("ep_cache_context")
    if not isinstance(content, bytes):
        raise ArtifactError("EPContext: the attribute ep_cache_context is missing; expected an artifact or its file")
    if attributes.get("embed_mode", 1) == 1:
        return Artifact.from_bytes(content, name="EPContext")
    folder = Path(api.text("Graph_GetModelPath", graph)).parent
    name = content.decode(errors="replace")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ArtifactError(f"EPContext: the file {name!r} is outside the model's folder; expected a name in it")
    return Artifact.open(folder / name)


def _attribute(api: OnnxruntimeApi, name: str, value: int | bytes) -> int:
    if isinstance(value, bytes):
        return api.pointer("CreateOpAttr", name.encode(), value, len(value), AttributeKind.STRING)
    return api.pointer("CreateOpAttr", name.encode(), ctypes.byref(ctypes.c_int64(value)), 1, AttributeKind.INT)


def _texts(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
