"""Registers the provider with the onnxruntime of this process."""

from __future__ import annotations

import atexit
import ctypes
import functools
import tempfile
from pathlib import Path
from typing import Any

from motet.argument_kinds import check_kind
from motet.errors import DeviceError
from motet.onnxruntime.provider.contexts import NAME
from motet.onnxruntime.provider.provider import ProviderFactory
from motet.onnxruntime.provider.shared_library import library_bytes


def register_provider(name: str = "Motet") -> list[Any]:
    """Register the provider under `name`, once for a process; returns onnxruntime's devices for it.

    Raises DeviceError if onnxruntime is missing or older than 1.23, or for a processor without a library.
    """
    check_kind("name", name, str, "a name for the provider")
    onnxruntime = _imported()
    if found := _devices(onnxruntime):
        return found
    with tempfile.TemporaryDirectory(prefix="motet-") as folder:
        path = Path(folder) / "libmotet_onnxruntime.so"
        path.write_bytes(library_bytes())
        library = ctypes.CDLL(str(path))
        factory = ProviderFactory(ctypes.cast(library.motet_nothing, ctypes.c_void_p).value or 0)
        entries = (ctypes.c_void_p * 2).in_dll(library, "motet_entries")
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 6)(factory.create)
        entries[0] = ctypes.cast(create, ctypes.c_void_p).value
        try:
            onnxruntime.register_execution_provider_library(name, str(path))
        except Exception as error:
            raise DeviceError(f"onnxruntime {onnxruntime.__version__} refuses the provider: {error}") from error
    # When Python ends, onnxruntime, which ends later, must not call it any more, but still reads its tables: one more
    # reference, which nothing gives back, keeps them from the last collection of garbage.
    kept = functools.partial(_retire, factory, entries, create)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    atexit.register(kept)
    if not (found := _devices(onnxruntime)):
        raise DeviceError(f"onnxruntime {onnxruntime.__version__}: its interface for providers is too old: "
                          "pip install 'onnxruntime>=1.23'")  # fmt: skip
    return found


def _imported() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError("onnxruntime is not installed: pip install 'onnxruntime>=1.23'; "
                          "motet.onnxruntime.InferenceSession needs none") from None  # fmt: skip
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise DeviceError(f"onnxruntime {onnxruntime.__version__} takes no libraries of providers: "
                          "pip install 'onnxruntime>=1.23'")  # fmt: skip
    return onnxruntime


def _devices(onnxruntime: Any) -> list[Any]:
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]


def _retire(factory: ProviderFactory, entries: ctypes.Array[ctypes.c_void_p], create: object) -> None:
    entries[0] = entries[1] = None
    factory.retire()
