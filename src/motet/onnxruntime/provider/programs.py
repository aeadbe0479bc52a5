"""Compiles graphs of onnxruntime, and finds the nodes that Motet cannot compile."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import motet
from motet.artifact.reader import Artifact
from motet.errors import MotetError
from motet.onnxruntime.provider.graphs import GraphReader, likeness
from motet.onnxruntime.provider.interface import InterfaceError, OnnxruntimeApi
from motet.onnxruntime.provider.parts import DividedNode, divide

_log = logging.getLogger("motet")


@dataclass
class Programs:
    """The compiler of one session. Keeps what it has compiled until the session takes it."""

    api: OnnxruntimeApi
    devices: str | None
    options: dict[str, str]
    smallest: int  # the number of nodes of the smallest part that is worth a call
    _compiled: dict[bytes, Artifact] = field(default_factory=dict[bytes, Artifact])
    _reader: GraphReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = GraphReader(self.api)

    def parts(self, graph: int) -> list[list[int]]:
        """The nodes of a graph that compile, in parts: all of them if the whole graph does."""
        nodes = self._reader.nodes(graph)
        if not nodes:
            return []
        if self._compiles(graph, nodes):
            return [nodes]
        known: dict[bytes, bool] = {}
        facts = [
            DividedNode(self._reader.inputs(node), self._reader.outputs(node), self._is_supported(graph, node, known))
            for node in nodes
        ]
        divided = [[nodes[index] for index in part] for part in divide(facts)]
        return [part for part in divided if len(part) >= self.smallest and self._compiles(graph, part)]

    def compile(self, graph: int, inputs: Sequence[str]) -> Artifact:
        """Compile a graph; its inputs are in this order. Raises MotetError, InterfaceError."""
        with tempfile.TemporaryDirectory(prefix="motet-") as folder:
            path = self._reader.write(graph, inputs, Path(folder))
            key = _digest(path.parent)
            if (kept := self._compiled.pop(key, None)) is not None:
                return kept
            return motet.compile(path, devices=self.devices, options=self.options, format="onnx")

    def _compiles(self, graph: int, nodes: Sequence[int]) -> bool:
        """Whether nodes compile together; keeps the artifact."""
        view = self._view(graph, nodes)
        try:
            with tempfile.TemporaryDirectory(prefix="motet-") as folder:
                path = self._reader.write(view, None, Path(folder))
                key = _digest(path.parent)
                self._compiled[key] = motet.compile(path, devices=self.devices, options=self.options, format="onnx")
            return True
        except (MotetError, InterfaceError) as error:
            _log.info("onnxruntime: %d nodes stay with other providers: %s", len(nodes), error)
            return False
        finally:
            self.api.call("ReleaseGraph", view)

    def _is_supported(self, graph: int, node: int, known: dict[bytes, bool]) -> bool:
        """Whether a node has code, alone; `known` has the answers for nodes that are alike."""
        view = self._view(graph, [node])
        try:
            with tempfile.TemporaryDirectory(prefix="motet-") as folder:
                path = self._reader.write(view, None, Path(folder))
                key = likeness(path)
                if key not in known:
                    known[key] = _lowers(path)
                return known[key]
        except InterfaceError:
            return False
        finally:
            self.api.call("ReleaseGraph", view)

    def _view(self, graph: int, nodes: Sequence[int]) -> int:
        return self.api.pointer("Graph_GetGraphView", graph, (ctypes.c_void_p * len(nodes))(*nodes), len(nodes))


def _lowers(path: Path) -> bool:
    """Whether a model reaches the compiler's kernels."""
    from motet.compiler import service

    try:
        service.emit(service.CompileRequest(None, str(path), "onnx", cache=False), "normalised")
        return True
    except MotetError:
        return False


def _digest(folder: Path) -> bytes:
    """A digest of a model's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.digest()
