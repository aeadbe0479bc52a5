"""Devices without shared virtual memory: their memory is `cl_mem`, of which kernels take aligned parts only."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.callers import Array, caller_of
from tests.unit.runtime.drivers.opencl.opening import opencl_device

import motet
from motet import builder as mb
from motet import opencl
from motet.errors import DeviceError
from motet.runtime.device import Reference, Work, find_device, open_device
from motet.runtime.drivers.opencl.api import OpenClApi
from motet.runtime.drivers.opencl.driver import conformance_kernels

DEVICES = ("opencl:0", "opencl:1")
pytestmark = pytest.mark.every  # the first one that uses a platform waits for its trials


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def _program() -> tuple[Any, Any]:
    """Three products and a softmax between them, whose buffers begin at odd multiples of 64 bytes, and numpy's."""
    weights = [_random(13, 17), _random(17, 21), _random(21, 5)]
    with mb.Graph("main") as g:
        x = g.input("x", ("batch", 13))
        for number, weight in enumerate(weights):
            x = x @ g.constant(weight)
            x = mb.softmax(x) if number == 1 else mb.tanh(x)
        g.result(x)

    def expected(x: Array) -> Array:
        y = np.tanh(x.astype(np.float64) @ weights[0]) @ weights[1]
        y = np.exp(y - y.max(axis=1, keepdims=True))
        return np.tanh(y / y.sum(axis=1, keepdims=True) @ weights[2])

    return g, expected


@pytest.fixture(params=DEVICES)
def uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device with the option; shared virtual memory is an error."""
    opencl_device(request.param)

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("shared virtual memory is used")

    for name in ("allocate", "set_pointer", "copy", "fill"):
        monkeypatch.setattr(OpenClApi, name, refuse)
    return f"{request.param}?svm=0"


def test_programs_run_with_their_own_and_with_callers_buffers(uri: str) -> None:
    program, expected = _program()
    with motet.load(motet.compile(program, devices="opencl"), devices=uri) as session:
        for rows in (1, 7, 33, 0, 7):
            x = _random(rows, 13)
            np.testing.assert_allclose(session(x), expected(x), rtol=1e-5, atol=1e-6)
        with caller_of(uri.partition("?")[0]) as caller:
            for rows in (7, 33, 1):
                x = _random(rows, 13)
                given = opencl.empty(caller.queue, "cl_mem", x.shape, "f32")
                given.write(x, caller.queue)
                out = opencl.empty(caller.queue, "cl_mem", (rows, 5), "f32")
                session.enqueue(given, out=out, stream=caller.queue).wait()
                np.testing.assert_allclose(out.read(caller.queue), expected(x), rtol=1e-5, atol=1e-6)


def test_arguments_that_overlap_in_part_are_refused(uri: str) -> None:
    with contextlib.closing(open_device(find_device(uri))) as device:
        _, units = conformance_kernels()
        code = device.load(list(units["kernels"].values()), list(units["kernels"]))
        memory = device.allocate(4096)
        parts = (Reference(0, 68, 64), Reference(0, 100, 64))
        work = device.record(code, [Work("launch", parts, "affine", 4, (1,))], 1, 0)
        with pytest.raises(DeviceError, match="arguments of a kernel overlap in part, 64 bytes at byte 68 of a cl_mem"):
            device.submit(work, [memory]).wait()
