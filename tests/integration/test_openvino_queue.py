"""Motet and OpenVINO's GPU plug-in on one queue, with Intel's driver in capture mode: it needs no GPU, and runs no
kernel, so that a test sees handles, memory and errors, but no numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.capture_mode import run_captured

pytest.importorskip("openvino", reason="needs OpenVINO: make intel")

_SCRIPT = """
import numpy as np
import openvino as ov
from openvino import opset13 as ops
import motet.openvino
from motet import opencl
from motet.errors import CallError, MotetError, OptionError
from motet.openvino.remote import RemoteContext, RemoteRequest
from motet.runtime.device import find_device
from motet.runtime.drivers.opencl.api import load_api
from motet.runtime.drivers.opencl.driver import device_handle
from motet.runtime.function import Function

def refused(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error) and "\\n" not in str(error), str(error)
    else:
        raise AssertionError(text)

uri = "opencl:graphics"
api, device = load_api(), device_handle(find_device(uri))
context = api.context_create(device)
queue, loose = api.queue_create(context, device, in_order=True), api.queue_create(context, device)
assert f"OCL_CONTEXT:{context:#x}" in RemoteContext(context, queue).parameters()
assert f"OCL_QUEUE:{queue:#x}" in RemoteContext(context, queue).parameters()

# A model of three steps: the operations named `openvino` stay with OpenVINO.
x, n = ops.parameter([6, 10], np.float32), ops.parameter([6, 1], np.int64)
first = ops.tanh(ops.exp(ops.add(ops.sigmoid(x), ops.convert(n, "f32"))))
sums = ops.cum_sum(first, ops.constant(np.int64(1)))
last = ops.relu(ops.exp(ops.multiply(ops.tanh(sums), ops.constant(np.float32(0.5)))))
model = ov.Model([ops.result(last, name="last"), ops.result(ops.add(n, n), name="twice")], [x, n], "steps")
sums.set_friendly_name("openvino sums")

import motet.openvino.queued as queued
lowering = queued.lowering_for("f32", "opencl{cpu=opencl-c}", None, 3)
left = type(lowering)(lambda node: "stays" if node.get_type_name() == "CumSum" else lowering.obstacle(node),
                      lowering.compile, lowering.smallest)
queued.lowering_for = lambda *_: left

refused(OptionError, "out of order", motet.openvino.compile_on_queue, model, loose, device=uri)
refused(OptionError, "hint 'bf16'", motet.openvino.compile_on_queue, model, queue, "bf16", device=uri)
refused(OptionError, "queue: str given", motet.openvino.compile_on_queue, model, "queue", device=uri)
dynamic = model.clone()
dynamic.reshape({0: [-1, 10], 1: [-1, 1]})
refused(OptionError, "static", motet.openvino.compile_on_queue, dynamic, queue, device=uri)

put = []
enqueue, run = Function.enqueue, RemoteRequest.run
Function.enqueue = lambda self, *a, out=None, **o: (
    put.append(("motet", [b.handle for b in a], [b.handle for b in out])), enqueue(self, *a, out=out, **o))[1]
RemoteRequest.run = lambda self, a, out: (
    put.append(("openvino", [b.handle for b, _ in a], [b.handle for b, _ in out])), run(self, a, out))[1]

compiled = motet.openvino.compile_on_queue(model, queue, device=uri)
print(compiled.report)
assert [part.types["Tanh"] for part in compiled.report.replaced] == [1, 1]
assert ("openvino sums", "stays") in [(each.name, each.reason) for each in compiled.report.left]
given = [opencl.empty(queue, "cl_mem", (6, 10), "f32"), opencl.empty(queue, "cl_mem", (6, 1), "i64")]
out = [opencl.empty(queue, "cl_mem", (6, 10), "f32"), opencl.empty(queue, "cl_mem", (6, 1), "i64")]
for _ in range(2):
    put.clear()
    copies = opencl.counts().copies
    assert compiled(*given, out=out) == out
    assert opencl.counts().copies == copies
    written = {handle for _, _, outs in put for handle in outs}
    read = {handle for _, ins, _ in put for handle in ins}
    assert {"motet", "openvino"} == {who for who, _, _ in put} and len(put) >= 3
    assert {b.handle for b in out} <= written and {b.handle for b in given} <= read
    assert read - {b.handle for b in given} <= written
    seen = {b.handle for b in given}
    for _, ins, outs in put:  # each step reads what earlier ones wrote
        assert set(ins) <= seen, (ins, seen)
        seen |= set(outs)
api.finish(queue)
assert [buffer.shape for buffer in compiled(*given)] == [(6, 10), (6, 1)]
refused(CallError, "argument: 1 buffers given; expected 2", compiled, given[0])
refused(CallError, "argument 0:", compiled, given[1], given[0])
refused(CallError, "in cl_mem", compiled, opencl.empty(queue, "usm_device", (6, 10), "f32"), given[1])
print("done")
"""


def test_steps_run_on_the_callers_queue_and_memory(tmp_path: Path) -> None:
    assert run_captured(_SCRIPT, tmp_path).endswith("done\n")
