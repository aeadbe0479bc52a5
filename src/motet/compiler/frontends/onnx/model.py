"""An ONNX model in memory: the graph as a protobuf, its constants as separate arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from motet.compiler.frontends.onnx.data import DataError, DataFiles, read_sparse, read_tensor
from motet.errors import CompileError, Location

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class KeptState:
    """State that a session keeps between calls under `name`: a call reads it as `input`, one of the last inputs of the
    graph, and leaves it as `output`, one of its last outputs. `initial` is its first value."""

    name: str
    input: str
    output: str
    initial: np.ndarray


@dataclass(frozen=True)
class ExtentBound:
    """The extent of axis `axis` of an input is at least `least` and, if that is given, at most `most`."""

    input: str
    axis: int
    least: int
    most: int | None


Extents = Sequence["int | str | None"]  # numbers, the model's names of dynamic extents, None for others


@dataclass(frozen=True)
class ShapedNode:
    """A node with the extents of its inputs and of its first result, if its rank is known, and the values of its inputs
    that are constant."""

    node: onnx.NodeProto
    extents: Sequence[Extents]
    result: Extents | None
    values: Sequence[np.ndarray | None]

    @staticmethod
    def of(
        node: onnx.NodeProto, extents: Mapping[str, Extents], constants: Mapping[str, np.ndarray]
    ) -> ShapedNode | None:
        """A copy of `node`; None if the rank of an input is unknown."""
        if any(name not in extents for name in node.input if name):
            return None
        copy = type(node)()
        copy.CopyFrom(node)
        values = [constants.get(name) for name in node.input]
        return ShapedNode(copy, [extents.get(name, ()) for name in node.input], extents.get(node.output[0]), values)


@dataclass
class Dropped:
    """Nodes whose results became known without them. Nodes whose results are all `unread` in the model as it was are
    left out."""

    unread: set[str]
    nodes: list[ShapedNode]

    def add(self, node: onnx.NodeProto, extents: Mapping[str, Extents], constants: Mapping[str, np.ndarray]) -> None:
        if not self.unread.issuperset(node.output) and (shaped := ShapedNode.of(node, extents, constants)) is not None:
            self.nodes.append(shaped)


@dataclass
class OnnxModel:
    """A parsed model. `proto` is the model without initializers, `constants` their values by name, `file` its name in
    errors, `files` the source of external data. `inner` marks a body of another model, with the same constants.
    `elements` has the element types of inputs and outputs that are stored as bytes, `states` what sessions keep,
    `bounds` those of dynamic extents. `demands` are values of nodes that assert operators' demands of extents.
    `dropped` collects nodes until `assert_demands.py` asserts what they demand; it is None at other times. `kept` are
    values that are computed without readers."""

    proto: onnx.ModelProto
    file: str
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    inner: bool = False
    files: DataFiles | None = None
    elements: dict[str, str] = field(default_factory=dict[str, str])
    states: list[KeptState] = field(default_factory=list[KeptState])
    bounds: list[ExtentBound] = field(default_factory=list["ExtentBound"])
    demands: set[str] = field(default_factory=set[str])
    dropped: Dropped | None = None
    kept: set[str] = field(default_factory=set[str])

    @property
    def opsets(self) -> dict[str, int]:
        """The version of each imported operator set; the default domain is the empty string."""
        return {_domain(entry.domain): entry.version for entry in self.proto.opset_import}

    def error(self, message: str) -> CompileError:
        return CompileError(message.replace("\n", "\\n"), Location(self.file))

    def value(self, tensor: onnx.TensorProto | onnx.SparseTensorProto, what: str) -> np.ndarray:
        """The value of `tensor`, named `what` in errors, wherever its data is. Raises CompileError."""
        try:
            if hasattr(tensor, "indices"):
                return read_sparse(cast("onnx.SparseTensorProto", tensor), self.files)
            return read_tensor(cast("onnx.TensorProto", tensor), self.files)
        except DataError as error:
            raise self.error(f"{what}: {error}") from error


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def require_onnx() -> None:
    """Raises CompileError if the package `onnx` is missing."""
    try:
        import onnx  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        raise CompileError('reading ONNX needs the package onnx; install it: pip install "motet[onnx]"') from error
