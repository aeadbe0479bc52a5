"""Attributes of onnxruntime's nodes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

from motet.onnxruntime.provider.interface import InterfaceError, OnnxruntimeApi

Value = int | float | bytes | list[int] | list[float] | list[bytes]


class AttributeKind(IntEnum):
    """The types of attributes (OrtOpAttrType)."""

    INT = 1
    INTS = 2
    FLOAT = 3
    FLOATS = 4
    STRING = 5
    STRINGS = 6
    GRAPH = 7
    TENSOR = 8


@dataclass(frozen=True)
class NodeAttributes:
    """Reads attributes through onnxruntime's interface."""

    api: OnnxruntimeApi

    def plain(self, node: int) -> dict[str, Value]:
        """A node's attributes by name, without tensors and graphs. Raises InterfaceError."""
        found = {self.name(each): (each, self.kind(each)) for each in self.api.several("Node", "Attributes", node)}
        return {name: self.value(each, kind) for name, (each, kind) in found.items()
                if kind not in (AttributeKind.TENSOR, AttributeKind.GRAPH)}  # fmt: skip

    def name(self, attribute: int) -> str:
        return self.api.text("OpAttr_GetName", attribute)

    def kind(self, attribute: int) -> AttributeKind:
        """The type of an attribute. Raises InterfaceError for one that onnxruntime does not hand out."""
        out = ctypes.c_int()
        self.api.call("OpAttr_GetType", attribute, ctypes.byref(out))
        if out.value not in list(AttributeKind):
            raise InterfaceError(f"attribute {self.name(attribute)!r} is of an unknown type")
        return AttributeKind(out.value)

    def value(self, attribute: int, kind: AttributeKind) -> Value:
        """The value of an attribute that is neither a tensor nor a graph."""
        content = self._content(attribute, kind)
        if kind is AttributeKind.STRING:
            return content
        if kind is AttributeKind.STRINGS:
            return content.split(b"\0")[:-1]
        if kind in (AttributeKind.INT, AttributeKind.INTS):
            integers = [int(number) for number in memoryview(content).cast("q")]
            return integers[0] if kind is AttributeKind.INT else integers
        floats = [float(number) for number in memoryview(content).cast("f")]
        return floats[0] if kind is AttributeKind.FLOAT else floats

    def _content(self, attribute: int, kind: AttributeKind) -> bytes:
        size = ctypes.c_size_t()
        status = self.api.function("ReadOpAttr")(attribute, kind, None, 0, ctypes.byref(size))
        if status:
            self.api.call("ReleaseStatus", status)  # it says that more bytes are needed
        content = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.api.call("ReadOpAttr", attribute, kind, content, size.value, ctypes.byref(size))
        return content.raw[: size.value]
