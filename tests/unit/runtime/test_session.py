"""Artifacts loaded and called, from one thread and many; every expected value is numpy's."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.conftest import DOUBLE, add_function, artifact_of, build, elementwise, spec, variant

from motet.artifact.schema import Command, Schedule, ScheduleBuffer, Signature, Symbol
from motet.errors import ArtifactError, CallError, DeviceError, OptionError
from motet.runtime import load


def weighted_reference(x: np.ndarray) -> np.ndarray:
    return (2 * x + np.arange(64, dtype=np.float32)[: x.size].reshape(x.shape)) * x


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# -- loading ---------------------------------------------------------------------------------------


def test_an_artifact_loads_from_a_file_its_bytes_and_itself(adder, tmp_path: Path):
    artifact = adder()
    artifact.save(tmp_path / "a.motet")
    a, b = random(3, 5), random(3, 5)
    for source in (artifact, tmp_path / "a.motet", str(tmp_path / "a.motet"), bytes(artifact.data)):
        np.testing.assert_array_equal(load(source)(a, b), a + b)


def test_what_is_no_artifact_is_an_error():
    with pytest.raises(ArtifactError, match="not an artifact"):
        load(b"hello")


def test_the_first_variant_that_the_processor_can_run_is_chosen(add_object):
    signature, schedule = add_function("f", 1, 4)
    wrong = build(elementwise("add", 2, "%y = fsub float %x0, %x1"))
    variants = [
        variant(["wrong.o"], {"f": schedule}, "future", ["quantum"]),
        variant(["a.o"], {"f": schedule}, "baseline"),
        variant(["wrong.o"], {"f": schedule}, "worse"),
    ]
    session = load(artifact_of([signature], variants, {"a.o": add_object, "wrong.o": wrong}))
    a = random(1, 4)
    assert session.variants[0].target == "baseline"
    np.testing.assert_array_equal(session(a, a), a + a)


def test_without_a_fitting_variant_the_error_says_what_each_needs(add_object):
    signature, schedule = add_function("f", 1, 4)
    variants = [variant(["a.o"], {"f": schedule}, "future", ["quantum", "warp"])]
    with pytest.raises(DeviceError, match=r"future \(needs quantum, warp, which the processor lacks\)"):
        load(artifact_of([signature], variants, {"a.o": add_object}))


def test_a_kernel_that_the_objects_lack_is_an_artifact_error(add_object):
    signature, schedule = add_function("f", 1, 4)
    lost = Schedule(schedule.buffers, [Command("dispatch", [0, 1, 2], "nowhere", 4, [4])])
    with pytest.raises(ArtifactError, match="kernel 'nowhere': no object of baseline defines it"):
        load(artifact_of([signature], [variant(["a.o"], {"f": lost})], {"a.o": add_object}))(
            random(1, 4), random(1, 4)
        )


def test_devices_and_threads_are_checked(adder):
    with pytest.raises(DeviceError, match="device @gpu: the program has no device of that name"):
        load(adder(), devices={"gpu": "host"})
    with pytest.raises(DeviceError, match="device nosuch:0: it is not present; present: host"):
        load(adder(), devices="nosuch:0")
    with pytest.raises(OptionError, match="threads: 0 given"):
        load(adder(), threads=0)
    a = random(3, 5)
    np.testing.assert_array_equal(load(adder(), devices="host", threads=1)(a, a), a + a)


# -- calling ---------------------------------------------------------------------------------------


def test_functions_are_found_by_name_and_the_default_is_main(weighted):
    session = load(weighted)
    x, a = random(3, 4), random(2, 2)
    for call in (session, session.main, session["main"], session.functions["main"]):
        np.testing.assert_array_equal(call(x), weighted_reference(x))
    np.testing.assert_array_equal(session.other(a, a), a + a)
    assert list(session) == ["main", "other"]
    assert session.signature.name == "main"
    with pytest.raises(CallError, match="no function 'none'; there are: main, other"):
        session["none"]
    with pytest.raises(AttributeError, match="functions: main, other"):
        session.none  # noqa: B018


def test_a_session_of_several_functions_without_main_asks_which(add_object):
    first, schedule = add_function("f", 1, 4)
    second, _ = add_function("g", 1, 4)
    artifact = artifact_of([first, second], [variant(["a.o"], {"f": schedule, "g": schedule})], {"a.o": add_object})
    with pytest.raises(CallError, match="which function is meant\\? there are: f, g"):
        load(artifact)(random(1, 4), random(1, 4))


@pytest.mark.parametrize("rows", [0, 1, 3, 7, 16, 3])
def test_extents_are_evaluated_per_call(weighted, rows: int):
    session = load(weighted)
    for count in (rows, 5, rows):
        x = random(count, 4)
        np.testing.assert_array_equal(session(x), weighted_reference(x))


def test_more_extents_than_are_kept_still_work(add_object):
    signature = Signature("f", [spec("x", "n")], [spec("y", "n")], [Symbol("n", 0, 0)])
    size = ["*", "n", 4]
    schedule = Schedule(
        [
            ScheduleBuffer("input", size), ScheduleBuffer("result", size)
        ], [Command("dispatch", [0, 1], "double", "n", ["n"])]
    )
    session = load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": add_object}))
    for n in (*range(100), *range(0, 100, 7)):
        x = random(n)
        np.testing.assert_array_equal(session(x), x + x)


def test_extents_that_overrun_a_parameter_are_an_error_and_not_a_read(weighted):
    with pytest.raises(ArtifactError, match="parameter 1: bytes 0 to 272; there are 256"):
        load(weighted)(random(17, 4))


def test_equal_symbols_must_be_equal_extents(add_object):
    signature = Signature("f", [spec("x", "n"), spec("y", "n")], [spec("z", "n")], [Symbol("n", 0, 0)])
    size = ["*", "n", 4]
    schedule = Schedule(
        [ScheduleBuffer("input", size), ScheduleBuffer("input", size, 1), ScheduleBuffer("result", size)],
        [Command("dispatch", [0, 1, 2], "add", "n", ["n"])],
    )
    session = load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": add_object}))
    np.testing.assert_array_equal(session(random(3), random(3)), 2 * random(3))
    with pytest.raises(CallError, match=r'f: argument 1 \("y"\): shape 4 given, 3 expected'):
        session(random(3), random(4))


def test_results_that_fail_to_have_a_size_are_an_error(add_object):
    signature = Signature("f", [spec("x", "n")], [spec("y", ["-", "n", 3])], [Symbol("n", 0, 0)])
    schedule = Schedule([ScheduleBuffer("result", 0)], [])
    session = load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": add_object}))
    assert session(random(5)).shape == (2,)
    assert session(random(3)).shape == (0,)
    with pytest.raises(CallError, match="f: y: shape -1"):
        session(random(2))


def test_a_result_that_is_an_input_is_a_copy(add_object):
    signature = Signature("f", [spec("x", 6)], [spec("y", 6), spec("z", 6)])
    schedule = Schedule(
        [ScheduleBuffer("input", 24), ScheduleBuffer("result", 24), ScheduleBuffer("result", 24, 1)],
        [Command("copy", [0, 1]), Command("dispatch", [0, 2], "double", 6, [6])],
    )
    session = load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": add_object}))
    x = random(6)
    y, z = session(x)
    assert not np.shares_memory(x, y)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x + x)


def test_a_function_without_results_returns_none(add_object):
    signature = Signature("f", [spec("x", 2)], [])
    artifact = artifact_of([signature], [variant(["a.o"], {"f": Schedule([], [])})], {"a.o": add_object})
    assert load(artifact)(random(2)) is None


# -- memory ----------------------------------------------------------------------------------------


def test_out_is_written_and_returned(adder):
    session = load(adder())
    a, b, out = random(3, 5), -random(3, 5) * 2, np.empty((3, 5), np.float32)
    assert session(a, b, out=out) is out
    np.testing.assert_array_equal(out, a + b)
    out[:] = 0
    assert session(a, b, out=(out,)) is out
    np.testing.assert_array_equal(out, a + b)


def test_out_that_does_not_fit_is_an_error(adder):
    session = load(adder())
    a = random(3, 5)
    fixed = np.zeros((3, 5), np.float32)
    fixed.flags.writeable = False
    for out, message in (
        (np.empty((5, 3), np.float32), r'entry: result 0 \("sum"\): shape 5x3 given, 3x5 expected'),
        (np.empty((3, 5)), "dtype f64 given, f32 expected"),
        (np.empty((5, 3), np.float32).T, "must be contiguous"),
        (fixed, "read-only memory given"),
        ((fixed, fixed), "out: 2 given, 1 expected"),
        (a, "out for result 0 shares memory with argument 0"),
    ):
        with pytest.raises(CallError, match=message):
            session(a, random(3, 5), out=out)


@pytest.fixture
def in_place(add_object):
    """`f(x, y)`, y += x, in destination-passing style."""
    signature = Signature("f", [spec("x", 6), spec("y", 6)], [spec("y", 6, destination=1)])
    schedule = Schedule(
        [ScheduleBuffer("input", 24), ScheduleBuffer("input", 24, 1), ScheduleBuffer("result", 24)],
        [Command("dispatch", [0, 1, 2], "add", 6, [6])],
    )
    return load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": add_object}))


def test_destinations_are_written_in_place_and_returned(in_place):
    x, y = random(6), random(6) * 3
    expected = x + y
    assert in_place(x, y) is y
    np.testing.assert_array_equal(y, expected)
    assert in_place(x, y, out=y) is y
    np.testing.assert_array_equal(y, expected + x)


def test_destinations_that_cannot_be_written_are_errors(in_place):
    x, y = random(6), random(12)
    with pytest.raises(CallError, match=r'argument 1 \("y"\): strides 8 given, a destination must be contiguous'):
        in_place(x, y[::2])
    with pytest.raises(CallError, match="read-only memory given, a destination must be writable"):
        in_place(x, bytes(24))
    with pytest.raises(CallError, match="argument 1, a destination, shares memory with argument 0"):
        in_place(y[:6], y[5:11])
    with pytest.raises(CallError, match="is written to argument 1; out must be that or None"):
        in_place(x, y[:6], out=y[6:])


def test_large_results_go_back_to_the_pool(adder):
    session = load(adder(512, 1024))
    a = random(512, 1024)
    first = session(a, a)
    assert session.memory.results >= first.nbytes
    view = first[3:]
    address = first.ctypes.data
    del first
    assert session(a, a).ctypes.data != address  # a view holds it
    np.testing.assert_array_equal(view, 2 * a[3:])
    del view
    gc.collect()
    assert session.memory.results == 0
    assert session(a, a).ctypes.data % 64 == 0


def test_memory_says_what_is_held(weighted):
    session = load(weighted)
    assert session.memory.parameters == 256
    session(random(16, 4))
    assert session.memory.arena >= 512


def test_results_outlive_the_session(adder):
    with load(adder(512, 1024)) as session:
        a = random(512, 1024)
        result = session(a, a)
    del session
    gc.collect()
    np.testing.assert_array_equal(result, a + a)


def test_a_closed_session_says_so(adder):
    session = load(adder())
    session.close()
    session.close()
    with pytest.raises(CallError, match="the session is closed"):
        session(random(3, 5), random(3, 5))
    with pytest.raises(CallError, match="the session is closed"):
        session.submit(random(3, 5), random(3, 5))


# -- concurrency -----------------------------------------------------------------------------------


def test_eight_threads_call_one_session(weighted):
    session = load(weighted)
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(200):
            x = generator.standard_normal((int(generator.integers(0, 17)), 4)).astype(np.float32)
            if not np.array_equal(session(x), weighted_reference(x)):
                failures.append(f"{seed}: {x.shape}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_submitted_calls_run_in_order(in_place):
    x, y = np.ones(6, np.float32), np.zeros(6, np.float32)
    futures = [in_place.submit(x, y) for _ in range(50)]
    assert futures[-1].result(60) is y
    assert all(future.done() for future in futures)
    np.testing.assert_array_equal(y, np.full(6, 50, np.float32))


def test_a_failed_submission_fails_alone(in_place):
    x, y = np.ones(6, np.float32), np.zeros(6, np.float32)
    bad = in_place.submit(x)
    good = in_place.submit(x, y)
    assert isinstance(bad.exception(10), CallError)
    np.testing.assert_array_equal(good.result(60), x)


def test_closing_waits_for_what_was_submitted(in_place):
    x, y = np.ones(6, np.float32), np.zeros(6, np.float32)
    futures = [in_place.submit(x, y) for _ in range(20)]
    in_place.close()
    assert all(future.done() for future in futures)
    np.testing.assert_array_equal(y, np.full(6, 20, np.float32))


def test_profile_names_each_kernel_in_order(weighted):
    session = load(weighted)
    measured = session.profile(random(9, 4))
    assert [name for name, _ in measured] == ["double", "add", "scale"]
    assert all(0 <= seconds < 10 for _, seconds in measured)


# -- isolation -------------------------------------------------------------------------------------


def test_running_needs_no_compiler(weighted, tmp_path: Path):
    weighted.save(tmp_path / "a.motet")
    program = f"""
import sys
import motet.runtime, numpy
x = numpy.ones((2, 4), numpy.float32)
y = motet.runtime.load({str(tmp_path / "a.motet")!r})(x)
assert y.tolist() == [[2, 3, 4, 5], [6, 7, 8, 9]], y
assert not any(m.startswith(("torch", "llvmlite", "triton", "mlir", "motet.compiler")) for m in sys.modules)
"""
    source = Path(__file__).parents[3] / "src"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240, env={"PYTHONPATH": str(source)})


def test_dtypes_of_one_byte_pass_through():
    kernel = elementwise("invert", 1, "%y = xor i8 %x0, 1", element="i8")
    signature = Signature("f", [spec("x", 5, dtype="i1")], [spec("y", 5, dtype="i1")])
    schedule = Schedule(
        [ScheduleBuffer("input", 5), ScheduleBuffer("result", 5)], [Command("dispatch", [0, 1], "invert", 5, [5])]
    )
    session = load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": build(kernel, DOUBLE)}))
    x = np.array([True, False, True, True, False])
    np.testing.assert_array_equal(session(x), ~x)
    assert session(x).dtype == np.bool_
