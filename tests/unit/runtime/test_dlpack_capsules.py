"""Tensors handed out through DLPack: what other libraries see, and when their memory goes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from motet.runtime import dlpack

_HOST = (1, 0)


class Shared:
    """An exporter of an array's memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _HOST

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: object) -> Any:
        a = self.array
        return dlpack.make_capsule(a.ctypes.data, a.shape, a.dtype, _HOST, self, versioned=max_version is not None)


class Old(Shared):
    """One from before versions."""

    def __dlpack__(self, *, stream: object = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__dlpack__()


@pytest.mark.parametrize("kind", [Shared, Old])
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "?"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 1, 7), (0, 4)])
def test_numpy_sees_the_memory(kind: type[Shared], dtype: str, shape: tuple[int, ...]):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    exporter = kind(array)
    seen = np.from_dlpack(exporter)  # pyright: ignore[reportArgumentType]
    assert seen.dtype == array.dtype and seen.shape == array.shape
    np.testing.assert_array_equal(seen, array)
    assert not array.size or seen.ctypes.data == array.ctypes.data
    alive = weakref.ref(exporter)
    del exporter
    gc.collect()
    assert alive() is not None
    del seen
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(("dtype", "name"), [
    (ml_dtypes.bfloat16, "bfloat16"), (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    (ml_dtypes.float8_e5m2, "float8_e5m2"), (ml_dtypes.float8_e4m3fnuz, "float8_e4m3fnuz"),
    (ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu"),
    (np.float32, "float32"), (np.bool_, "bool"), (np.int64, "int64"),
])
def test_torch_sees_the_memory(dtype: Any, name: str):
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    array = np.arange(12).reshape(3, 4).astype(dtype)
    exporter = Shared(array)
    tensor = torch.from_dlpack(exporter)
    assert tensor.dtype == getattr(torch, name) and tensor.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(tensor.to(torch.float32).numpy(), array.astype(np.float32))
    alive = weakref.ref(exporter)
    del exporter, tensor
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("versioned", [True, False])
def test_a_capsule_that_nobody_takes_lets_its_owner_go(versioned: bool):
    owner = Shared(np.zeros(3))
    alive = weakref.ref(owner)
    capsule = dlpack.make_capsule(64, (3,), np.dtype("f8"), (2, 1), owner, versioned=versioned)
    del owner
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_capsules_are_read_as_they_were_made():
    owner = Shared(np.zeros(3))
    for versioned in (True, False):
        capsule = dlpack.make_capsule(4096, (3, 5), np.dtype(ml_dtypes.bfloat16), (2, 1), owner, versioned=versioned)

        class Exporter:
            def __dlpack__(self, *, stream: int, capsule: Any = capsule) -> Any:
                assert stream == 7
                return capsule

        found = dlpack.export_from(Exporter(), "a test", 7)
        assert (found.address, found.shape, found.strides) == (4096, (3, 5), None)
        assert found.dtype == np.dtype(ml_dtypes.bfloat16) and not found.read_only
    with pytest.raises(BufferError, match="DLPack has no dtype for"):
        dlpack.make_capsule(0, (), np.dtype("S3"), _HOST, owner, versioned=True)
