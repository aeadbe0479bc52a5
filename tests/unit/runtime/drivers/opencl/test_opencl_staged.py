"""Calls on a caller's queue of functions that one device does not compute as a whole: with state, of two devices, with
loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.callers import Array, Caller, caller_of, has_usm

import motet
from motet import opencl
from motet.errors import CallError
from motet.runtime.drivers.opencl.api import DEVICE_IL

T = "tensor<?x8xf32>"
# s += x in each call, and the sum of what was there and x
STATE = """
ml_program.global private mutable @s(dense<1.0> : tensor<8xf32>) : tensor<8xf32>
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %s = ml_program.global_load @s : tensor<8xf32>
  %t = linalg.add ins(%s, %x : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  ml_program.global_store @s = %t : tensor<8xf32>
  %r = linalg.exp ins(%t : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""
TWO = f"""
"motet.device"() {{sym_name = "cpu", alternatives = ["host"]}} : () -> ()
"motet.device"() {{sym_name = "acc", alternatives = ["opencl"]}} : () -> ()
func.func @main(%x: {T} {{motet.affinity = "acc"}})
    -> ({T} {{motet.affinity = "acc"}}, {T} {{motet.affinity = "cpu"}}) {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : {T}
  %e = tensor.empty(%n) : {T}
  %a = linalg.exp {{motet.affinity = "acc"}} ins(%x : {T}) outs(%e : {T}) -> {T}
  %b = linalg.abs {{motet.affinity = "cpu"}} ins(%a : {T}) outs(%e : {T}) -> {T}
  %c = linalg.negf {{motet.affinity = "acc"}} ins(%b : {T}) outs(%e : {T}) -> {T}
  return %c, %b : {T}, {T}
}}
"""
DEVICES = ("opencl:0", "opencl:1")


def _session(source: str, caller: Caller, uri: str, devices: dict[str, str]) -> Any:
    target = "spirv64" if "SPIR-V" in caller.api.device_text(caller.device, DEVICE_IL) else "opencl-c"
    compiled = motet.compile(source, devices={name: text.replace("TARGET", target) for name, text in devices.items()})
    return motet.load(compiled, devices={name: uri for name, text in devices.items() if "opencl" in text})


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("uri", DEVICES)
@pytest.mark.parametrize("in_order", [False, True])
def test_state_is_kept_from_call_to_call(uri: str, in_order: bool) -> None:
    with caller_of(uri, in_order=in_order) as caller:
        session = _session(STATE, caller, uri, {"": "opencl{cpu=TARGET}"})
        kinds = ["cl_mem", "svm", *(["usm_device", "usm_host"] if has_usm(caller) else []), "host"]
        total = np.ones(8)
        for number, kind in enumerate(kinds * 2):
            x = _random(8 + number)[:8]
            given, out = caller.given(x, kind), opencl.empty(caller.queue, kind, (8,), "f32")
            total += x
            call = session.enqueue(given, out=out, stream=caller.queue)
            assert call.result is out and call.event.done
            np.testing.assert_allclose(out.read(caller.queue), np.exp(total), rtol=1e-5)
        x = _random(8)
        total += x
        result = session(caller.given(x, "host"), stream=caller.queue)
        np.testing.assert_allclose(np.asarray(result), np.exp(total), rtol=1e-5)
        user = caller.api.user_event(caller.context)
        caller.api.end_user_event(user)
        total += x
        made = session.enqueue(caller.given(x, "cl_mem"), stream=caller.queue, wait=[user]).wait()
        assert made.kind == "cl_mem"
        np.testing.assert_allclose(made.read(caller.queue), np.exp(total), rtol=1e-5)
        np.testing.assert_allclose(session(x), np.exp(total + x), rtol=1e-5)
        caller.api.release("Event", user)


@pytest.mark.parametrize("uri", DEVICES)
def test_functions_of_two_devices(uri: str) -> None:
    with caller_of(uri) as caller, caller_of(uri) as other:
        session = _session(TWO, caller, uri, {"acc": "opencl{cpu=TARGET}", "cpu": "host"})
        x = _random(3, 8)
        for rows in (3, 0, 17, 3):
            x = _random(rows, 8)
            call = session.enqueue(caller.given(x, "cl_mem"), stream=caller.queue)
            negative, positive = call.wait()
            wanted = np.exp(x.astype(np.float64))
            np.testing.assert_allclose(negative.read(caller.queue), -wanted, rtol=1e-5)
            np.testing.assert_allclose(positive.read(caller.queue), wanted, rtol=1e-5)
        with pytest.raises(CallError, match="of another context than the call's queue"):
            session.enqueue(other.given(x, "cl_mem"), stream=caller.queue)
        given = caller.given(x, "cl_mem")
        with pytest.raises(CallError, match="shares memory with argument 0"):
            session.enqueue(given, out=(given, None), stream=caller.queue)
