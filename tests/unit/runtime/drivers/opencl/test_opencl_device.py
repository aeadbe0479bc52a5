"""The OpenCL device with programs in OpenCL C, on every platform of this machine. The contract's own checks are in
`tests/integration/test_opencl_contract.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device

from motet.errors import DeviceError
from motet.runtime.device import Reference, Work, open_device
from motet.runtime.drivers.opencl.device import OpenClDevice

# out[task] = x[task] * 3 + s0, in the work-item's own memory where it has some
_SCALE = b"""
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void scale__2b1s(global int *x, global int *out, long s0, long tasks, global uchar *scratch, long stride) {
  long n = get_global_size(0), w = get_global_id(0);
  global int *own = stride ? (global int *)(scratch + w * stride) : out;
  for (long i = w * tasks / n; i < (w + 1) * tasks / n; i++) {
    long place = stride ? 0 : i;
    own[place] = x[i] * 3;
    out[i] = own[place] + (int)s0;
  }
}
"""


@pytest.fixture(params=["opencl:0", "opencl:1"])
def device(request: pytest.FixtureRequest) -> Iterator[OpenClDevice]:
    opened: Any = open_device(opencl_device(request.param))
    yield opened
    opened.close()


def scaled(device: OpenClDevice, x: np.ndarray, add: int, scratch: int = 0) -> np.ndarray:
    """What two launches make of `x`: the second one reads the result of the first."""
    executable = device.load([_SCALE], ["scale.cl"])
    size = x.nbytes
    first, middle, last = (Reference(number, 0, size) for number in range(3))
    commands = device.record(executable, [
        Work("launch", (first, middle), "scale", x.size, (add,)),
        Work("launch", (middle, last), "scale", x.size, (add,), after=(0,)),
    ], 3, scratch)
    buffers = [device.allocate(size) for _ in range(3)]
    done = device.submit(commands, buffers, [device.write(buffers[0], x)])
    result = np.empty_like(x)
    device.read(buffers[2], result, waits=[done]).wait(60)
    return result


@pytest.mark.parametrize("scratch", [0, 4, 100])
@pytest.mark.parametrize("tasks", [0, 1, 7, 1000])
def test_launches_wait_for_each_other(device: OpenClDevice, tasks: int, scratch: int) -> None:
    x = np.random.default_rng(tasks).integers(-1000, 1000, tasks, np.int32)
    np.testing.assert_array_equal(scaled(device, x, 5, scratch), (x * 3 + 5) * 3 + 5)


def test_a_program_is_built_once_while_it_is_used(device: OpenClDevice) -> None:
    first, second = device.load([_SCALE], ["a"]), device.load([_SCALE], ["b"])
    assert first.entries["scale"].program is second.entries["scale"].program


def test_a_wrong_program_is_one_line_with_the_compiler_s_error(device: OpenClDevice) -> None:
    code = _SCALE.replace(b"(int)s0", b"s1")
    with pytest.raises(DeviceError, match="s1") as error:
        device.load([code], ["scale.cl"])
    text = str(error.value)
    assert text.startswith(f"device {device.info.uri}: scale.cl: clBuildProgram failed: ") and "\n" not in text


def test_a_launch_has_the_kernel_s_buffers_and_sizes(device: OpenClDevice) -> None:
    executable = device.load([_SCALE], ["scale.cl"])
    one = Reference(0, 0, 4)
    for references, sizes, what in (((one,), (1,), "1 buffers"), ((one, one), (), "0 sizes")):
        with pytest.raises(DeviceError, match=f"command 0: {what} for scale; expected"):
            device.record(executable, [Work("launch", references, "scale", 1, sizes)], 1, 0)
