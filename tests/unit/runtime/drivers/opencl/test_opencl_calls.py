"""Calls with the caller's context, queue, buffers and events, on every platform of this machine."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.opencl.callers import KINDS, Array, Caller, caller_of, has_usm, loaded

import motet
from motet import opencl
from motet.errors import CallError, CompileError, DeviceError
from motet.runtime.drivers.opencl.api import OpenClApi

# y = x · w + x with a number of w for each column, and z = exp(y) summed over rows
TEXT = """
#rows = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<?x16xf32>, %w: tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?x16xf32>
  %y = linalg.generic {indexing_maps = [#rows, affine_map<(d0, d1) -> (d1)>, #rows],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %w : tensor<?x16xf32>, tensor<16xf32>) outs(%e : tensor<?x16xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %p, %a : f32
      linalg.yield %q : f32
  } -> tensor<?x16xf32>
  %g = linalg.exp ins(%y : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %r = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.fill ins(%zero : f32) outs(%r : tensor<?xf32>) -> tensor<?xf32>
  %z = linalg.reduce ins(%g : tensor<?x16xf32>) outs(%s : tensor<?xf32>) dimensions = [1]
    (%in: f32, %acc: f32) { %t = arith.addf %in, %acc : f32 linalg.yield %t : f32 }
  return %y, %z : tensor<?x16xf32>, tensor<?xf32>
}
"""
DEVICES = ("opencl:0", "opencl:1")


@pytest.fixture(params=DEVICES)
def uri(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def session(uri: str) -> Iterator[Any]:
    with loaded(TEXT, uri) as made:
        yield made


@pytest.fixture
def caller(uri: str) -> Iterator[Caller]:
    with caller_of(uri) as made:
        yield made


def inputs(rows: int) -> tuple[Array, Array]:
    random = np.random.default_rng(rows)
    return random.uniform(-1, 1, (rows, 16)).astype(np.float32), random.uniform(-1, 1, 16).astype(np.float32)


def expected(x: Array, w: Array) -> tuple[Array, Array]:
    y = x.astype(np.float64) * w + x
    return y, np.exp(y).sum(axis=1)


def check(results: Any, x: Array, w: Array, caller: Caller) -> None:
    for result, wanted in zip(results, expected(x, w), strict=True):
        got = result.read(caller.queue) if isinstance(result, opencl.Buffer) else np.asarray(result)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 129])
def test_buffers_of_each_kind_are_used_where_they_are(session: Any, caller: Caller, kind: str, rows: int) -> None:
    if kind.startswith("usm") and not has_usm(caller):
        pytest.skip("no unified shared memory")
    x, w = inputs(rows)
    out = tuple(opencl.empty(caller.queue, kind, shape, "f32") for shape in ((rows, 16), (rows,)))
    call = session.enqueue(caller.given(x, kind), caller.given(w, kind), out=out, stream=caller.queue)
    assert call.wait() is call.result
    assert all(given is got for given, got in zip(out, call.result, strict=True))
    assert call.event.done
    check(out, x, w, caller)


def test_kinds_may_differ_between_arguments(session: Any, caller: Caller) -> None:
    kinds = ("cl_mem", "usm_device", "svm", "usm_shared") if has_usm(caller) else ("cl_mem", "svm", "host", "cl_mem")
    x, w = inputs(33)
    out = (opencl.empty(caller.queue, kinds[2], (33, 16), "f32"), opencl.empty(caller.queue, kinds[3], (33,), "f32"))
    session.enqueue(caller.given(x, kinds[0]), caller.given(w, kinds[1]), out=out, stream=caller.queue).wait()
    check(out, x, w, caller)
    results = session(x, caller.given(w, kinds[0]), stream=caller.queue)  # an array of the host, and new results
    caller.api.finish(caller.queue)
    assert [result.kind for result in results] == [kinds[0], kinds[0]]
    check(results, x, w, caller)
    check(session(x, w, stream=opencl.Queue(caller.queue)), x, w, caller)


def test_nothing_on_the_device_is_copied_or_allocated(
    session: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = inputs(50)
    given = caller.given(x, "cl_mem"), caller.given(w, "svm")
    out = tuple(opencl.empty(caller.queue, "cl_mem", shape, "f32") for shape in ((50, 16), (50,)))
    session.enqueue(*given, out=out, stream=caller.queue).wait()
    counted: list[str] = []
    for name in ("copy", "fill", "transfer", "copy_buffer", "allocate", "buffer_create", "program_create"):
        def note(*arguments: Any, name: str = name, **named: Any) -> Any:
            counted.append(name)
            raise AssertionError(name)

        monkeypatch.setattr(OpenClApi, name, note)
    for _ in range(3):
        session.enqueue(*given, out=out, stream=caller.queue).wait()
    assert counted == []


@pytest.mark.parametrize("in_order", [False, True])
def test_a_call_waits_for_its_wait_list(session: Any, uri: str, in_order: bool) -> None:
    with caller_of(uri, in_order=in_order) as caller, caller_of(uri) as other:
        x, w = inputs(64)
        given = caller.given(x, "cl_mem"), caller.given(w, "cl_mem")
        out = tuple(opencl.empty(caller.queue, "cl_mem", shape, "f32") for shape in ((64, 16), (64,)))
        user = caller.api.user_event(caller.context)
        call = session.enqueue(*given, out=out, stream=caller.queue, wait=[user])
        chained = session.enqueue(out[0], given[1], stream=caller.queue, wait=[call.event])
        assert not call.event.done and not chained.event.done
        caller.api.end_user_event(user)
        chained.wait()
        assert call.event.done
        check(out, x, w, caller)
        check(chained.result, expected(x, w)[0].astype(np.float32), w, caller)
        foreign = other.api.user_event(other.context)
        with pytest.raises(CallError, match="wait 0: an event of another context; expected"):
            session.enqueue(*given, out=out, stream=caller.queue, wait=[foreign])
        for event in (user, foreign):
            caller.api.release("Event", event)


def test_one_module_runs_in_several_contexts_from_several_threads(session: Any, uri: str) -> None:
    failed: list[BaseException] = []

    def work(caller: Caller, rows: int) -> None:
        try:
            x, w = inputs(rows)
            given = caller.given(x, "cl_mem"), caller.given(w, "svm")
            for _ in range(20):
                check(session.enqueue(*given, stream=caller.queue).wait(), x, w, caller)
        except BaseException as error:
            failed.append(error)

    with caller_of(uri) as first, caller_of(uri) as second:
        threads = [
            threading.Thread(target=work, args=(caller, rows)) for caller in (first, second) for rows in (5, 33)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failed == []


def test_mistakes_are_one_line(session: Any, caller: Caller, uri: str) -> None:
    x, w = inputs(8)
    a, b = caller.given(x, "cl_mem"), caller.given(w, "cl_mem")
    host = x.ctypes.data

    def fails(text: str, *arguments: Any, stream: Any = caller.queue, **named: Any) -> None:
        with pytest.raises(CallError, match=text) as error:
            session(*arguments, stream=stream, **named)
        assert "\n" not in str(error.value)

    fails('^main: argument 0 .*: svm stated, but .* is an OpenCL object',
          opencl.Buffer(a.handle, "svm", (8, 16), "f32"), b)
    stated = "no unified shared memory of the queue's context" if has_usm(caller) else "has no unified shared memory"
    fails(stated, opencl.Buffer(host, "usm_device", (8, 16), "f32"), b)
    fails("without a queue; expected stream=", a, b, stream=None)
    fails("stream: str given", a, b, stream="queue")
    fails("stream: .* is not a command queue", a, b, stream=a.handle)
    fails("stream: 0x1e240 is not a command queue: it is released", a, b, stream=123456)
    fails("argument 0 .*: shape 4x4 given", opencl.Buffer(a.handle, "cl_mem", (4, 4), "f32"), b)
    fails("dtype i32 given, f32 expected", opencl.Buffer(a.handle, "cl_mem", (8, 16), "i32"), b)
    fails("shares memory with argument 0", a, b, out=(a, None))
    with pytest.raises(CallError, match="wait: int given; expected a list of events"):
        session.enqueue(a, b, stream=caller.queue, wait=7)
    with caller_of(uri) as other:
        fails("argument 1 .*: its memory is of another context than the call's queue", a, other.given(w, "cl_mem"))


def test_a_wrong_buffer_is_one_line(caller: Caller) -> None:
    x, _ = inputs(8)
    a = caller.given(x, "cl_mem")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((x.ctypes.data, "cl_mem", (8, 16), "f32"), "is not a cl_mem: it is released, or another kind"),
        ((a.handle, "cl_mem", (9, 16), "f32"), "the cl_mem has 512 bytes; expected 576"),
        ((a.handle, "vram", (8, 16), "f32"), "kind 'vram'; expected one of cl_mem, usm_host"),
        (("x", "cl_mem", (8, 16), "f32"), "handle: str given; expected an int"),
        ((a.handle, "cl_mem", (8, 16), "f99"), "dtype 'f99': unknown"),
        ((a.handle, "cl_mem", (-8, 16), "f32"), "opencl.Buffer: shape -8x16; expected no negative extent"),
        ((a.handle, "cl_mem", 8, "f32"), "opencl.Buffer: shape 8; expected a sequence of integers"),
        ((a.handle, "cl_mem", (8.0, 16), "f32"), "expected a sequence of integers"),
    ]
    for arguments, text in wrong:
        with pytest.raises(CallError, match=text):
            opencl.Buffer(*arguments)
    for kind in ("cl_mem", "svm", "usm_device"):
        with pytest.raises(DeviceError, match=f"4,398,046,511,104 bytes of {kind} memory of .*; expected"):
            opencl.empty(caller.queue, kind, (1 << 40,), "f32")
    for kind, shape, text in (("vram", (1,), "kind 'vram'; expected one of"), ("svm", (-1,), "no negative extent")):
        with pytest.raises(CallError, match=f"opencl.empty: .*{text}"):
            opencl.empty(caller.queue, kind, shape, "f32")
    handle = a.handle
    del a
    gc.collect()
    with pytest.raises(CallError, match="is not a cl_mem"):
        opencl.Buffer(handle, "cl_mem", (8, 16), "f32")


@pytest.mark.parametrize("kind", ["usm_host", "usm_device", "usm_shared"])
def test_the_stated_kind_of_shared_memory_is_checked(session: Any, caller: Caller, kind: str) -> None:
    if not has_usm(caller):
        pytest.skip("no unified shared memory")
    x, w = inputs(8)
    a, b = caller.given(x, kind), caller.given(w, kind)
    other = "usm_host" if kind == "usm_shared" else "usm_shared"
    for wrong, text in ((other, f"{other} stated, but .* is {kind} memory"), ("svm", f"is {kind} memory")):
        with pytest.raises(CallError, match=text):
            session(opencl.Buffer(a.handle, wrong, (8, 16), "f32"), b, stream=caller.queue)
    with pytest.raises(CallError, match=f"512 bytes of {kind} memory .*; expected 576"):
        session(opencl.Buffer(a.handle, kind, (9, 16), "f32"), b, stream=caller.queue)
    address = a.handle
    del a
    gc.collect()
    with pytest.raises(CallError, match="is no unified shared memory of the queue's context: it is freed"):
        session(opencl.Buffer(address, kind, (8, 16), "f32"), b, stream=caller.queue)


def test_a_repeated_call_is_checked_like_the_first(session: Any, caller: Caller, uri: str) -> None:
    kind = "usm_shared" if has_usm(caller) else "cl_mem"
    x, w = inputs(8)
    a, b = caller.given(x, kind), caller.given(w, "cl_mem")
    raw = opencl.Buffer(a.handle, kind, (8, 16), "f32")
    outs = [tuple(opencl.empty(caller.queue, "cl_mem", shape, "f32") for shape in ((8, 16), (8,))) for _ in range(2)]
    for number in range(6):
        out = outs[number % 2]
        assert session.enqueue(raw, b, out=out, stream=caller.queue).wait() == out
        check(out, x, w, caller)
        b.write(w := w + np.float32(0.25), caller.queue)
    new = [session.enqueue(raw, b, stream=caller.queue).wait() for _ in range(2)]
    assert new[0][0] is not new[1][0]
    with caller_of(uri) as other, pytest.raises(CallError, match="of another context than the call's queue"):
        session.enqueue(raw if kind == "cl_mem" else b, b, out=outs[0], stream=other.queue)
    del a
    gc.collect()
    if kind != "cl_mem":
        with pytest.raises(CallError, match="it is freed"):
            session.enqueue(raw, b, out=outs[0], stream=caller.queue)


def test_a_call_like_an_earlier_one_with_other_buffers_is_right_and_checked(
    session: Any, caller: Caller, uri: str
) -> None:
    kind = "usm_device" if has_usm(caller) else "cl_mem"

    def call(rows: int, kind: str = kind) -> tuple[Any, Any, Any, Any]:
        x, w = inputs(rows)
        a, b = caller.given(x, kind), caller.given(w, kind)
        outs = tuple(opencl.empty(caller.queue, kind, shape, "f32") for shape in ((rows, 16), (rows,)))
        stated = opencl.Buffer(a.handle, kind, (rows, 16), "f32")
        assert session.enqueue(stated, b, out=outs, stream=caller.queue).wait() == outs
        check(outs, x, w, caller)
        return a, b, outs[0], outs[1]

    kept = [call(rows) for rows in (8, 8, 8, 5, 8, 0, 8, 5, 1)]
    call(8, "svm")
    a, b, y, z = kept[0]
    with pytest.raises(CallError, match="out for result 0 shares memory with argument 0"):
        session.enqueue(a, b, out=(a, z), stream=caller.queue)
    with pytest.raises(CallError, match="out for result 1 shares memory with result 0"):
        part = opencl.Buffer(y.handle, kind, (8,), "f32")
        session.enqueue(a, b, out=(y, part), stream=caller.queue)
    wrong = r"another context|no unified shared memory of the"
    with caller_of(uri) as other, pytest.raises(CallError, match=wrong):
        session.enqueue(a, other.given(inputs(8)[1], kind), out=(y, z), stream=caller.queue)


def test_a_result_over_the_bus_gives_one_warning(
    session: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_usm(caller):
        pytest.skip("no unified shared memory")
    x, w = inputs(8)
    out = (opencl.empty(caller.queue, "usm_host", (8, 16), "f32"), None)
    given = caller.given(x, "usm_device"), caller.given(w, "usm_device")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # this device's memory is the host's
        session(*given, out=out, stream=caller.queue)
    number = OpenClApi.device_number
    monkeypatch.setattr(OpenClApi, "device_number", lambda api, device, what: (
        0 if what == 0x1035 else number(api, device, what)))
    with pytest.warns(RuntimeWarning, match="^main: a result in usm_host memory.*usm_device memory is faster"):
        session(*given, out=out, stream=caller.queue)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(*given, out=out, stream=caller.queue)


def test_a_queue_of_another_device_is_refused(session: Any, uri: str) -> None:
    other = next(each for each in DEVICES if each != uri)
    x, w = inputs(8)
    with caller_of(other) as caller:
        a, b = caller.given(x, "cl_mem"), caller.given(w, "cl_mem")
        with pytest.raises(CallError, match=f"the queue is of .*; the session runs on {uri}"):
            session(a, b, stream=caller.queue)
        with motet.load(motet.compile(TEXT)) as host, pytest.raises(CallError, match="the session runs on the host"):
            host(a, b, stream=caller.queue)


# A row of a table by its number, which is checked.
GATHER = """
func.func @main(%t: tensor<10xf32>, %i: tensor<4xi64>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%i : tensor<4xi64>) outs(%e : tensor<4xf32>) {
    ^bb0(%n: i64, %o: f32):
      %c = arith.index_cast %n : i64 to index
      %ten = arith.constant 10 : i64
      %below = arith.cmpi ult, %n, %ten : i64
      cf.assert %below, "the index is below ten"
      %v = tensor.extract %t[%c] : tensor<10xf32>
      linalg.yield %v : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def test_a_failed_check_is_an_error_of_the_call_or_the_next(uri: str) -> None:
    table, right, wrong = np.arange(10, dtype=np.float32), np.array([1, 9, 0, 3]), np.array([1, 2, 3, 10])
    with loaded(GATHER, uri) as session, caller_of(uri) as caller:
        given = caller.given(table, "cl_mem")
        good, bad = caller.given(right, "cl_mem"), caller.given(wrong, "cl_mem")
        np.testing.assert_array_equal(
            session.enqueue(given, good, stream=caller.queue).wait().read(caller.queue), table[right]
        )
        with pytest.raises(CallError, match="below ten"):
            session.enqueue(given, bad, stream=caller.queue).wait()
        session(given, bad, stream=caller.queue)
        caller.api.finish(caller.queue)
        with pytest.raises(CallError, match="below ten"):
            session(given, good, stream=caller.queue)
        np.testing.assert_array_equal(
            session.enqueue(given, good, stream=caller.queue).wait().read(caller.queue), table[right]
        )


STATED = """
func.func @main(%x: tensor<8xf32> {motet.memory = "svm"}, %y: tensor<8xf32> {motet.memory = #gpu.address_space<global>})
    -> (tensor<8xf32> {motet.memory = "cl_mem"}) {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.add ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""


def test_the_kind_that_a_program_states_is_checked(uri: str) -> None:
    x = np.arange(8, dtype=np.float32)
    with loaded(STATED, uri) as session, caller_of(uri) as caller:
        svm, mem, out = (caller.given(x, kind) for kind in ("svm", "cl_mem", "cl_mem"))
        session.enqueue(svm, mem, out=out, stream=caller.queue).wait()
        np.testing.assert_array_equal(out.read(caller.queue), 2 * x)
        assert session.enqueue(svm, mem, stream=caller.queue).wait().kind == "cl_mem"
        for arguments, text in (
            ((mem, mem, out), "argument 0 .*: cl_mem memory given; the program states svm"),
            ((svm, x, out), "argument 1 .*: host memory given; the program states memory of the device"),
            ((svm, mem, svm), "result 0 .*: svm memory given; the program states cl_mem"),
        ):
            with pytest.raises(CallError, match=text):
                session.enqueue(*arguments[:2], out=arguments[2], stream=caller.queue)
        np.testing.assert_array_equal(session(x, x), 2 * x)  # in the session's own context


def test_a_kind_that_does_not_exist_is_a_compile_error() -> None:
    for spelling in ('"vram"', "#gpu.address_space<workgroup>"):
        with pytest.raises(CompileError, match=r"main: argument 0: motet\.memory = .*; expected one of global, cl_mem"):
            motet.compile(STATED.replace('"svm"', spelling), devices="opencl")
