"""Measures what a call on a caller's OpenCL queue costs over the platform's own empty launch.

    python -m benchmarks.opencl_calls [DEVICE]

Prints a table of microseconds: of calls with each kind of memory, of those over the launch, and of calls with other
buffers than the eight calls before over the launch. They are the least of many rounds, in which calls and launches
alternate. All end when their event does.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import motet
from motet import opencl
from motet.errors import DeviceError
from motet.runtime.device import find_device
from motet.runtime.drivers.opencl.api import DEVICE_IL, Handle, OpenClApi, load_api
from motet.runtime.drivers.opencl.driver import device_handle
from motet.runtime.drivers.opencl.objects import load_objects

_ROUNDS = 2000
_SETS = 9  # of buffers; a function remembers fewer calls
_TEXT = """
func.func @main(%x: tensor<1x1xf32>, %y: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %e = tensor.empty() : tensor<1x1xf32>
  %r = linalg.add ins(%x, %y : tensor<1x1xf32>, tensor<1x1xf32>) outs(%e : tensor<1x1xf32>) -> tensor<1x1xf32>
  return %r : tensor<1x1xf32>
}
"""


def empty_launch(api: OpenClApi, context: Handle, device: Handle, queue: Handle) -> Callable[[], None]:
    program = api.program_create(context, b"kernel void nothing(void) {}")
    api.build(program, device, "")
    kernel = api.kernel_create(program, "nothing")

    def launch() -> None:
        event = api.launch(queue, kernel, 1)
        api.wait([event])
        api.release("Event", event)

    return launch


def calls(uri: str, api: OpenClApi, queue: Handle, device: Handle) -> dict[str, list[Callable[[], None]]]:
    """For each kind of memory, a call with the same buffers each time, and one with others."""
    target = "spirv64" if "SPIR-V" in api.device_text(device, DEVICE_IL) else "opencl-c"
    session = motet.load(motet.compile(_TEXT, devices=f"opencl{{cpu={target}}}"), devices=uri)
    kinds = ["cl_mem", "svm"]
    if load_objects().usm(device).is_there:
        kinds += ["usm_device", "usm_shared", "usm_host"]
    found: dict[str, list[Callable[[], None]]] = {}
    for kind in kinds:
        sets = [[opencl.empty(queue, kind, (1, 1), "f32") for _ in range(3)] for _ in range(_SETS)]
        for each in itertools.chain(*sets):
            each.write(np.ones((1, 1), np.float32), queue)
        found[kind] = [_caller(session, queue, sets[:1]), _caller(session, queue, sets)]
    return found


def _caller(session: motet.Session, queue: Handle, sets: list[list[Any]]) -> Callable[[], None]:
    following = itertools.cycle(sets)

    def call() -> None:
        x, y, out = next(following)
        session.enqueue(x, y, out=out, stream=queue).wait()

    return call


def main(uri: str) -> None:
    try:
        device = device_handle(find_device(uri))
    except DeviceError as error:
        sys.exit(f"error: {error}")
    api = load_api()
    context = api.context_create(device)
    queue = api.queue_create(context, device)
    launch = empty_launch(api, context, device, queue)
    for name, (same, others) in calls(uri, api, queue, device).items():
        base, own, other = (seconds * 1e6 for seconds in best_of(launch, same, others))
        print(f"| {name} | {own:.0f} | {own - base:.0f} | {other - base:.0f} |")


def best_of(*contenders: Callable[[], None]) -> list[float]:
    """The least seconds of each, in alternation."""
    best = [float("inf")] * len(contenders)
    for _ in range(_ROUNDS):
        for number, run in enumerate(contenders):
            begin = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - begin)
    return best


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "opencl:0")
