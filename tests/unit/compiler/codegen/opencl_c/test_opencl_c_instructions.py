"""Instructions in OpenCL C give what LLVM's code for this processor gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.opencl_c import instructions
from tests.unit.compiler.codegen.opencl_c.instructions import Cases
from tests.unit.runtime.drivers.opencl.opening import opencl_device

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.codegen.llvm.opencl_c.program import opencl_c_program, refusal
from motet.compiler.targets.native import native_target
from motet.errors import DeviceLost
from motet.runtime.device import Reference, Work, find_device, open_device

GROUPS = (
    instructions.integer_arithmetic, instructions.odd_integers, instructions.integer_functions,
    instructions.float_arithmetic, instructions.conversions, instructions.lanes, instructions.memory,
)


@pytest.fixture(scope="module", params=["opencl:0", "opencl:1"])
def device(request: pytest.FixtureRequest) -> Any:
    opened = open_device(opencl_device(request.param))
    yield opened
    opened.close()


@pytest.mark.parametrize("widest", [16, 1])
@pytest.mark.parametrize("fill", GROUPS, ids=lambda fill: fill.__name__)
def test_instructions(device: Any, fill: Callable[[Cases], None], widest: int) -> None:
    cases = Cases(seed=7)
    fill(cases)
    mine, host = _on_device(device, cases, widest), _on_host(cases)
    wrong = [result.name for result in cases.results if not result.equal(mine, host)]
    assert not wrong, wrong


def _on_device(device: Any, cases: Cases, widest: int) -> bytes:
    program = opencl_c_program(cases.text, [("cases", 2, 0)], widest=widest).encode()
    assert not refusal(program), refusal(program)
    try:
        return _run(device, program, cases)
    except DeviceLost as died:  # old compilers do on new processors; one that rejects the program finds a fault in it
        pytest.skip(str(died))


def _on_host(cases: Cases) -> bytes:
    [code] = compile_units([ObjectUnit("cases", cases.text, False)], native_target(), 1)
    host = open_device(find_device("host"))
    try:
        return _run(host, code, cases)
    finally:
        host.close()


def _run(device: Any, code: bytes, cases: Cases) -> bytes:
    executable = device.load([code], ["cases"])
    sizes = len(cases.inputs), cases.written
    references = tuple(Reference(number, 0, size) for number, size in enumerate(sizes))
    commands = device.record(executable, [Work("launch", references, "cases", 1, ())], 2, 0)
    buffers = [device.allocate(size) for size in sizes]
    ready = [
        device.write(buffers[0], np.frombuffer(bytes(cases.inputs), np.uint8)),
        device.write(buffers[1], np.zeros(cases.written, np.uint8)),
    ]
    result = np.empty(cases.written, np.uint8)
    device.read(buffers[1], result, waits=[device.submit(commands, buffers, ready)]).wait(60)
    return result.tobytes()
