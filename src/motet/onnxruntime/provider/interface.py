"""onnxruntime's C interface for providers, version 23 (onnxruntime 1.23), by ctypes.

Its functions are reached through tables of addresses that grow at their ends. `API`, `PROVIDERS` and `EDITOR` give the
places of those that Motet calls, as the documented structs OrtApi, OrtEpApi and OrtModelEditorApi have them, and their
numbers of parameters. All parameters and results are passed as addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from typing import Any, NoReturn

VERSION = 23
WITH_RANKS = 24  # the version that tells tensors of unknown rank from scalars

API = {
    "CreateStatus": (0, 2), "GetErrorMessage": (2, 1), "GetTensorMutableData": (51, 2),
    "CastTypeInfoToTensorInfo": (55, 2), "GetTensorElementType": (60, 2), "GetDimensionsCount": (61, 2),
    "GetDimensions": (62, 3), "GetSymbolicDimensions": (63, 3), "GetTensorTypeAndShape": (65, 2),
    "KernelContext_GetInputCount": (88, 2), "KernelContext_GetInput": (90, 3), "KernelContext_GetOutput": (91, 5),
    "ReleaseStatus": (93, 1), "ReleaseValue": (96, 1), "ReleaseTensorTypeAndShapeInfo": (99, 1),
    "CreateOpAttr": (211, 5), "ReleaseOpAttr": (212, 1), "ReadOpAttr": (272, 5), "ReleaseGraph": (287, 1),
    "GetValueInfoName": (289, 2), "GetValueInfoTypeInfo": (290, 2), "GetModelEditorApi": (291, 0),
    "GetKeyValuePairs": (298, 4), "ReleaseKeyValuePairs": (300, 1), "HardwareDevice_Type": (307, 1),
    "GetEpApi": (317, 0), "GetTensorSizeInBytes": (318, 2),
    "ValueInfo_GetInitializerValue": (326, 2), "ValueInfo_IsConstantInitializer": (331, 2),
    "ValueInfo_IsFromOuterScope": (332, 2), "Graph_GetModelPath": (334, 2), "Graph_GetOnnxIRVersion": (335, 2),
    "Graph_GetNumOperatorSets": (336, 2), "Graph_GetOperatorSets": (337, 4), "Graph_GetNumInputs": (338, 2),
    "Graph_GetInputs": (339, 3), "Graph_GetNumOutputs": (340, 2), "Graph_GetOutputs": (341, 3),
    "Graph_GetNumNodes": (344, 2), "Graph_GetNodes": (345, 3), "Graph_GetParentNode": (346, 2),
    "Graph_GetGraphView": (347, 4), "Node_GetName": (349, 2), "Node_GetOperatorType": (350, 2),
    "Node_GetDomain": (351, 2), "Node_GetNumInputs": (353, 2), "Node_GetInputs": (354, 3),
    "Node_GetNumOutputs": (355, 2), "Node_GetOutputs": (356, 3), "Node_GetNumImplicitInputs": (357, 2),
    "Node_GetImplicitInputs": (358, 3), "Node_GetNumAttributes": (359, 2), "Node_GetAttributes": (360, 3),
    "OpAttr_GetTensorAttributeAsOrtValue": (362, 2), "OpAttr_GetType": (363, 2), "OpAttr_GetName": (364, 2),
    "Node_GetNumSubgraphs": (365, 2), "Node_GetSubgraphs": (366, 4), "Node_GetEpName": (368, 2),
    "GetSessionOptionsConfigEntries": (379, 2), "TensorTypeAndShape_HasShape": (390, 1),
}  # fmt: skip
PROVIDERS = {
    "CreateEpDevice": (0, 5), "EpGraphSupportInfo_AddNodesToFuse": (2, 4),
}
EDITOR = {
    "CreateNode": (6, 10),
}
# Functions that return a value, or nothing, instead of a status.
_PLAIN = {
    "GetErrorMessage", "CreateStatus", "GetModelEditorApi", "GetEpApi", "GetKeyValuePairs", "HardwareDevice_Type",
    "TensorTypeAndShape_HasShape",
}  # fmt: skip

FAILURE, INVALID = 11, 2  # OrtErrorCode: ORT_EP_FAIL, ORT_INVALID_ARGUMENT
CPU = 0  # OrtHardwareDeviceType


class InterfaceError(Exception):
    """onnxruntime refused a call."""


class OnnxruntimeApi:
    """The functions of one onnxruntime, from the address of its OrtApiBase. Arguments and results are addresses and
    integers, which fit registers."""

    def __init__(self, base: int) -> None:
        get = ctypes.CFUNCTYPE(c_void_p, ctypes.c_uint32)(_entry(base, 0))
        later = get(WITH_RANKS)
        self.knows_ranks = bool(later)
        table = later or get(VERSION)
        if not table:
            raise InterfaceError(f"onnxruntime lacks version {VERSION} of its interface; 1.23 or newer is needed")
        self._kinds = [ctypes.CFUNCTYPE(c_void_p, *[c_void_p] * count) for count in range(11)]
        self._functions: dict[str, Callable[..., Any]] = {}
        self._add(table, API)
        self._add(self.call("GetEpApi"), PROVIDERS)
        self.edits = bool(editor := self.call("GetModelEditorApi"))
        if self.edits:
            self._add(editor, EDITOR)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function; raises InterfaceError with the message of a status that is not a success."""
        result = self._functions[name](*arguments)
        if name in _PLAIN or name.startswith("Release"):
            return result
        if result:
            self.refuse(name, result)
        return None

    def refuse(self, name: str, status: int) -> NoReturn:
        """Raises InterfaceError with a status's message, and releases it."""
        message = ctypes.string_at(self._functions["GetErrorMessage"](status)).decode(errors="replace")
        self._functions["ReleaseStatus"](status)
        raise InterfaceError(f"{name}: {message}")

    def pointer(self, name: str, *arguments: Any) -> int:
        """What a function stores in its last parameter, as an address or number; 0 for none."""
        out = c_void_p()
        self.call(name, *arguments, ctypes.byref(out))
        return out.value or 0

    def flag(self, name: str, *arguments: Any) -> bool:
        """The bool that a function stores in its last parameter."""
        out = ctypes.c_bool()
        self.call(name, *arguments, ctypes.byref(out))
        return out.value

    def text(self, name: str, *arguments: Any) -> str:
        """The text that a function stores in its last parameter."""
        address = self.pointer(name, *arguments)
        return ctypes.string_at(address).decode() if address else ""

    def several(self, noun: str, plural: str, owner: int) -> list[int]:
        """The addresses that `Noun_GetPlural` gives of an object, as many as `Noun_GetNumPlural` says."""
        count = self.pointer(f"{noun}_GetNum{plural}", owner)
        array = (c_void_p * count)()
        if count:
            self.call(f"{noun}_Get{plural}", owner, array, count)
        return [value or 0 for value in array]

    def entries(self, pairs: int) -> dict[str, str]:
        """The content of an OrtKeyValuePairs."""
        keys, values, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_size_t()
        self.call("GetKeyValuePairs", pairs, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
        return {(keys[i] or b"").decode(): (values[i] or b"").decode() for i in range(count.value)}

    def failure(self, message: str, code: int = FAILURE) -> int:
        """A new status with a message."""
        return self.call("CreateStatus", code, message.encode())

    def function(self, name: str) -> Callable[..., Any]:
        """A function as it is: it returns the address of a status."""
        return self._functions[name]

    def _add(self, table: int, places: Mapping[str, tuple[int, int]]) -> None:
        for name, (place, count) in places.items():
            if name != "TensorTypeAndShape_HasShape" or self.knows_ranks:
                self._functions[name] = self._kinds[count](_entry(table, place))


def _entry(table: int, index: int) -> int:
    return c_void_p.from_address(table + 8 * index).value or 0
