"""The driver functions that every submission calls, through ctypes: structures and functions of its library.

The Python bindings take longer than the driver itself. Reference: CUDA Driver API,
https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from motet.runtime.drivers.common.streams import Handle


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: a kind, and a value of the size of the largest one."""

    _fields_ = (
        ("kind", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(LaunchAttribute)), ("count", ctypes.c_uint),
    )


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        ("out", ctypes.c_ubyte), ("into", ctypes.c_ubyte), ("kind", ctypes.c_ubyte), ("rest", ctypes.c_ubyte * 5),
    )


class CudaLaunch(NamedTuple):
    """A kernel and its launch configuration; `parameters` is the address of an array with a `void*` for each parameter.
    Created by `make_launch`."""

    function: Handle
    programs: int
    threads: int
    shared: int
    parameters: int
    config: LaunchConfig


def make_launch(function: Handle, programs: int, threads: int, shared: int, parameters: int) -> CudaLaunch:
    one = ctypes.c_uint * 3
    config = LaunchConfig(one(programs, 1, 1), one(threads, 1, 1), shared)
    return CudaLaunch(function, programs, threads, shared, parameters, config)


class Quick:
    """The driver's functions that every submission calls, loaded by ctypes; each returns its code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.add_dependencies: Callable[..., int] | None = None
        number, pointer = ctypes.c_uint, ctypes.c_void_p
        self.launch = _function(library, "cuLaunchKernelEx", pointer, pointer, pointer, pointer)
        self.executable_launch = _function(library, "cuGraphLaunch", pointer, pointer)
        with contextlib.suppress(AttributeError):  # from CUDA 12.3 on
            self.add_dependencies = _function(
                library, "cuGraphAddDependencies_v2", pointer, pointer, pointer, pointer, ctypes.c_size_t
            )
        self.current = _function(library, "cuCtxGetCurrent", pointer)
        self.push = _function(library, "cuCtxPushCurrent_v2", pointer)
        self.pop = _function(library, "cuCtxPopCurrent_v2", pointer)
        self.event_record = _function(library, "cuEventRecord", pointer, pointer)
        self.event_query = _function(library, "cuEventQuery", pointer)
        self.stream_wait = _function(library, "cuStreamWaitEvent", pointer, pointer, number)
        self.stream_is_capturing = _function(library, "cuStreamIsCapturing", pointer, pointer)
        self.exchange_capture_mode = _function(library, "cuThreadExchangeStreamCaptureMode", pointer)
        self.pointer_attributes = _function(
            library, "cuPointerGetAttributes", number, pointer, pointer, ctypes.c_uint64
        )


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Callable[..., int]:
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, ctypes.c_int
    return function


def error_name(driver: Any, code: int) -> str:
    """The driver's name of a code."""
    try:
        _, name = driver.cuGetErrorName(driver.CUresult(code))
    except ValueError:  # newer than the bindings
        return f"error {code}"
    return name.decode() if isinstance(name, bytes) else f"error {code}"


def uuid_text(uuid: bytes) -> str:
    """The UUID as written by `nvidia-smi -L`."""
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
