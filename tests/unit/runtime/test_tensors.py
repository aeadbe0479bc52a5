"""Callers' tensors are taken without a copy, whatever speaks DLPack or has a buffer, or refused in one sentence."""

from __future__ import annotations

import array
import gc
import sys
import types
import weakref

import ml_dtypes
import numpy as np
import pytest
from tests.unit.runtime.conftest import artifact_of, build, elementwise, spec, variant

from motet.artifact.schema import Command, Schedule, ScheduleBuffer, Signature
from motet.errors import CallError
from motet.runtime import load
from motet.runtime.tensors import adopt, adopt_destination


class Exporter:
    """A tensor of another library: memory that is only reached through DLPack, as version 0 or 1 of it."""

    def __init__(self, data: np.ndarray, *, versioned: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.data = data
        self.versioned = versioned
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: object) -> object:
        if self.versioned:
            return self.data.__dlpack__(max_version=(1, 0))
        if options.get("max_version") is not None:
            raise TypeError("max_version is not known")
        return self.data.__dlpack__()


def address(value: np.ndarray) -> int:
    return value.__array_interface__["data"][0]


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i8", "i64", "ui16", "i1"])
def test_dlpack_shares_memory(dtype: str, versioned: bool, writable: bool):
    from motet.artifact.dtypes import DTYPES

    data = np.arange(12).reshape(3, 4).astype(DTYPES[dtype])
    taken = adopt(Exporter(data, versioned=versioned), spec("x", 3, 4, dtype=dtype), "here", writable=writable)
    assert address(taken) == address(data)
    assert taken.dtype == data.dtype
    np.testing.assert_array_equal(taken, data)
    assert taken.flags.writeable or not writable


def test_dlpack_memory_lives_as_long_as_what_was_taken():
    data = np.arange(8, dtype=np.float32)
    watched = weakref.ref(data)
    taken = adopt(Exporter(data, versioned=False), spec("x", 8), "here", writable=True)
    del data
    gc.collect()
    assert watched() is not None
    assert taken.tolist() == list(range(8))
    del taken
    gc.collect()
    assert watched() is None


def test_dlpack_strides_and_negative_strides_are_honoured():
    data = np.arange(24, dtype=np.float32).reshape(4, 6)[::-1, ::2]
    taken = adopt(Exporter(data, versioned=False), spec("x", 4, 3), "here", writable=False)
    np.testing.assert_array_equal(taken, data)
    with pytest.raises(CallError, match="here: strides -24x8 given, a destination must be contiguous and aligned"):
        adopt(Exporter(data, versioned=False), spec("x", 4, 3), "here", writable=True)


def test_dlpack_of_no_elements_is_taken():
    taken = adopt(Exporter(np.empty((0, 3), np.float32), versioned=False), spec("x", 0, 3), "here", writable=True)
    assert taken.shape == (0, 3)


def test_read_only_dlpack_is_no_destination():
    data = np.arange(4, dtype=np.float32)
    data.flags.writeable = False
    np.testing.assert_array_equal(adopt(Exporter(data), spec("x", 4), "here", writable=False), data)
    with pytest.raises(CallError, match="here: read-only memory given"):
        adopt(Exporter(data), spec("x", 4), "here", writable=True)


def test_a_tensor_on_another_device_is_named():
    with pytest.raises(CallError, match="here: lies on cuda:1, host memory expected; copy it to the host"):
        adopt(Exporter(np.zeros(3), device=(2, 1)), spec("x", 3), "here", writable=False)


def test_a_tensor_that_refuses_to_be_exported_says_why():
    class Refusing(Exporter):
        def __dlpack__(self, **options: object) -> object:
            raise BufferError("it requires a gradient")

    with pytest.raises(CallError, match="here: cannot be taken through DLPack: it requires a gradient"):
        adopt(Refusing(np.zeros(3)), spec("x", 3), "here", writable=False)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_raw_bytes_are_the_content_of_a_static_tensor(make):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    taken = adopt(make(data.tobytes()), spec("x", 2, 3), "here", writable=False)
    np.testing.assert_array_equal(taken, data)
    with pytest.raises(CallError, match="here: 24 bytes given, 28 expected"):
        adopt(make(data.tobytes()), spec("x", 7), "here", writable=False)


def test_buffers_share_memory():
    values = array.array("f", [1, 2, 3])
    taken = adopt(values, spec("x", 3), "here", writable=True)
    taken[1] = 7
    assert list(values) == [1, 7, 3]
    view = memoryview(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(adopt(view, spec("x", 2, 3, dtype="f64"), "here", writable=False), view)


def test_numbers_are_taken_for_rank_zero_alone():
    assert adopt(3, spec("x"), "here", writable=False) == np.float32(3)
    assert adopt(np.float32(4), spec("x"), "here", writable=False) == np.float32(4)
    with pytest.raises(CallError, match="here: float given; expected"):
        adopt(3.0, spec("x", 1), "here", writable=False)


@pytest.mark.parametrize("value", [[1.0, 2.0], None, "text", object(), {}])
def test_what_is_no_tensor_is_named(value):
    with pytest.raises(CallError, match=f"here: {type(value).__name__} given; expected"):
        adopt(value, spec("x", 2), "here", writable=False)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.zeros(2), "f32", "dtype f64 given, f32 expected"),
        (np.zeros(2, np.complex64), "f32", "dtype complex<f32> given, f32 expected"),
        (np.zeros(2, ">f4"), "f32", "byte order '>' given"),
        (np.zeros(2, np.uint16), "bf16", "dtype ui16 given, bf16 expected"),
        (np.zeros(2, np.int8), "i1", "dtype i8 given, i1 expected"),
        (np.zeros(2, object), "i64", "dtype object given, i64 expected"),
    ],
)
def test_another_dtype_is_named(value, dtype: str, message: str):
    with pytest.raises(CallError, match=message):
        adopt(value, spec("x", 2, dtype=dtype), "here", writable=False)


def test_signless_integers_take_either_sign():
    data = np.array([1, 255], np.uint8)
    taken = adopt(data, spec("x", 2, dtype="i8"), "here", writable=True)
    assert taken.tolist() == [1, -1]
    assert address(taken) == address(data)


def test_an_input_that_is_not_contiguous_or_not_aligned_is_copied():
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (data.T, data[:, ::2], data[::-1], np.zeros(33, np.uint8)[1:].view(np.float32)):
        taken = adopt(view, spec("x", *view.shape), "here", writable=False)
        assert taken.flags.c_contiguous and taken.flags.aligned
        np.testing.assert_array_equal(taken, view)


def test_subclasses_of_arrays_are_taken():
    class Named(np.ndarray):
        pass

    data = np.zeros(3, np.float32).view(Named)
    assert type(adopt(data, spec("x", 3), "here", writable=True)) is np.ndarray


# -- in calls --------------------------------------------------------------------------------------


@pytest.fixture
def shifted():
    """`f(x: 5xbf16)`, its words plus one: the result's kind and bits are what is looked at."""
    kernel = elementwise("next", 1, "%y = add i16 %x0, 1", element="i16")
    signature = Signature("f", [spec("x", 5, dtype="bf16")], [spec("y", 5, dtype="bf16")])
    schedule = Schedule(
        [ScheduleBuffer("input", 10), ScheduleBuffer("result", 10)], [Command("dispatch", [0, 1], "next", 5, [5])]
    )
    return load(artifact_of([signature], [variant(["a.o"], {"f": schedule})], {"a.o": build(kernel)}))


def test_bf16_passes_in_and_out(shifted):
    x = np.array([1, -2, 0.5, 3, 100], ml_dtypes.bfloat16)
    y = shifted(x)
    assert y.dtype == x.dtype
    assert y.view(np.uint16).tolist() == (x.view(np.uint16) + 1).tolist()


@pytest.mark.parametrize("times", [1, 3])
def test_errors_say_function_argument_and_both_sides(adder, times: int):
    session = load(adder(128, 128))
    a = np.zeros((128, 128), np.float32)
    for _ in range(times):
        session(a, a)
    for arguments, message in (
        ((a, a[:127]), r'^entry: argument 1 \("b"\): shape 127x128 given, 128x128 expected$'),
        ((a, a.astype(np.float64)), r'^entry: argument 1 \("b"\): dtype f64 given, f32 expected$'),
        ((a,), r"^entry: 1 arguments given, 2 expected: entry\(a: 128x128xf32, b: 128x128xf32\)"),
        ((a, a, a), "^entry: 3 arguments given, 2 expected"),
        ((a, np.float32(1)), r'^entry: argument 1 \("b"\): shape scalar given, 128x128 expected$'),
    ):
        with pytest.raises(CallError, match=message):
            session(*arguments)


def test_a_caller_with_tensors_of_torch_gets_such_back(adder, monkeypatch):
    """A stand-in for torch: a module of that name whose tensors are reached through DLPack."""

    class Tensor(Exporter):
        pass

    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.from_dlpack = lambda exporter: Tensor(np.from_dlpack(exporter))
    monkeypatch.setitem(sys.modules, "torch", torch)
    session = load(adder())
    a = np.arange(15, dtype=np.float32).reshape(3, 5)
    for _ in range(3):
        result = session(Tensor(a), Tensor(a, versioned=False))
        assert isinstance(result, Tensor)
        np.testing.assert_array_equal(result.data, a + a)
        assert type(session(a, a)) is np.ndarray
    out = Tensor(np.empty_like(a), versioned=False)
    assert session(a, a, out=out) is out
    np.testing.assert_array_equal(out.data, a + a)


def test_torch_tensors_pass_in_and_out(adder, shifted):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    a = torch.arange(15, dtype=torch.float32).reshape(3, 5)
    result = load(adder())(a, a)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, a + a)
    x = torch.tensor([1, -2, 0.5, 3, 100], dtype=torch.bfloat16)
    y = shifted(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y.view(torch.int16), x.view(torch.int16) + 1)


def test_destinations_may_have_any_strides_under_which_elements_are_apart():
    """Each is compared with the addresses of its elements."""
    memory, rng = np.zeros(64, np.float32), np.random.default_rng(6)
    accepted = 0
    for _ in range(2000):
        shape, strides = rng.integers(1, 4, 3), rng.integers(0, 8, 3)
        places = np.add.outer(np.add.outer(*(np.arange(shape[k]) * strides[k] for k in (0, 1))),
                              np.arange(shape[2]) * strides[2])  # fmt: skip
        if places.max() >= memory.size:
            continue
        view = np.lib.stride_tricks.as_strided(memory, shape, 4 * strides)
        # Dense in some order of the axes, or with gaps between lines: every axis steps over those inside it.
        reach, nested = 1, True
        for stride, extent in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
            nested, reach = nested and stride >= reach, reach + (extent - 1) * stride
        try:
            found, contiguous = adopt_destination(view, spec("y", *map(int, shape)), "y")
        except CallError as error:
            assert "overlap" in str(error)
            assert not nested
            continue
        assert np.unique(places).size == places.size  # no two elements at one address
        assert found.shape == contiguous.shape == tuple(shape)
        accepted += 1
    assert accepted > 100
