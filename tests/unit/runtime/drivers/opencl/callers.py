"""A caller of OpenCL, for tests: contexts, queues and events that are not Motet's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device

import motet
from motet import opencl
from motet.errors import CompileError
from motet.runtime.drivers.opencl.api import DEVICE_IL, Handle, OpenClApi, load_api
from motet.runtime.drivers.opencl.device import SOURCE
from motet.runtime.drivers.opencl.driver import device_handle
from motet.runtime.drivers.opencl.objects import load_objects

KINDS = ("cl_mem", "usm_device", "usm_shared", "usm_host", "svm", "host")
Array = np.ndarray[Any, Any]


@dataclass
class Caller:
    """A context of a device with an out-of-order queue."""

    api: OpenClApi
    device: Handle
    context: Handle
    queue: Handle

    def given(self, array: Array, kind: str) -> opencl.Buffer:
        buffer = opencl.empty(self.queue, kind, array.shape, array.dtype)
        buffer.write(array, self.queue)
        return buffer


@contextmanager
def caller_of(uri: str, *, in_order: bool = False) -> Generator[Caller]:
    """Skips the test if the device is not there."""
    api, device = load_api(), device_handle(opencl_device(uri))
    context = api.context_create(device)
    queue = api.queue_create(context, device, in_order=in_order)
    yield Caller(api, device, context, queue)
    api.release("CommandQueue", queue)
    api.release("Context", context)


def has_usm(caller: Caller) -> bool:
    return load_objects().usm(caller.device).is_there


def loaded(source: str, uri: str) -> Any:
    """A session of a program on a device; skips the test if there is no code for it."""
    target = "spirv64" if "SPIR-V" in load_api().device_text(device_handle(opencl_device(uri)), DEVICE_IL) else SOURCE
    try:
        return motet.load(motet.compile(source, devices=f"opencl{{cpu={target}}}"), devices=uri)
    except CompileError as error:
        pytest.skip(str(error))
