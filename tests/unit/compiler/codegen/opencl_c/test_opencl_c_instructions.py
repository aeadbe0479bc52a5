"""Instructions in OpenCL C give what LLVM's code for this processor gives, on a platform that takes no SPIR-V."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from tests.unit.compiler.codegen.opencl_c import instructions
from tests.unit.compiler.codegen.opencl_c.instructions import Cases
from tests.unit.runtime.drivers.opencl.opening import opencl_device, source_device

from motet.compiler.codegen.llvm.opencl_c.program import opencl_c_program, refusal
from motet.runtime.device import Reference, Work, open_device

GROUPS = (
    instructions.integer_arithmetic, instructions.odd_integers, instructions.integer_functions,
    instructions.float_arithmetic, instructions.conversions, instructions.lanes, instructions.memory,
)


@pytest.fixture(scope="module")
def device() -> Any:
    opened = open_device(opencl_device(source_device()))
    yield opened
    opened.close()


@pytest.mark.parametrize("fill", GROUPS, ids=lambda fill: fill.__name__)
def test_instructions(device: Any, fill: Callable[[Cases], None]) -> None:
    cases = Cases(seed=7)
    fill(cases)
    mine, host = _on_device(device, cases), _on_host(cases)
    wrong = [result.name for result in cases.results if not result.equal(mine, host)]
    assert not wrong, wrong


def _on_device(device: Any, cases: Cases) -> bytes:
    program = opencl_c_program(cases.text, [("cases", 2, 0)]).encode()
    assert not refusal(program), refusal(program)
    executable = device.load([program], ["cases.cl"])
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


def _on_host(cases: Cases) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine: Any = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )
    engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(cases.text), machine)
    engine.finalize_object()
    source = ctypes.create_string_buffer(bytes(cases.inputs), len(cases.inputs))
    target = ctypes.create_string_buffer(cases.written)
    buffers = (ctypes.c_void_p * 2)(ctypes.addressof(source), ctypes.addressof(target))
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    call(engine.get_function_address("cases"))(ctypes.addressof(buffers), None, 0, 1, None)
    return target.raw
