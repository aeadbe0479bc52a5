"""Parameters are packed one at a time, while they are written."""

from __future__ import annotations

import tracemalloc

import numpy as np

from motet.artifact.parameters import ParameterFile, encode_parameters, encoded_size
from motet.compiler.build.parameters import pack_parameters
from motet.compiler.kernels.kernel import Packing
from motet.compiler.scheduling.schedule import ParameterStore

PANELS = Packing((0, 1), (1, 16), (2, 0, 1, 3))  # [k][n] as [n / 16][k][16]


def test_packed_parameters_have_the_bytes_of_their_panels() -> None:
    array = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    store = ParameterStore({"w": array, "b": array[0]})
    store.index("w", PANELS, (5, 37))
    store.index("b", None, (37,))
    parameters, entries = pack_parameters(store)
    file = b"".join(encode_parameters(parameters))
    assert len(file) == encoded_size(parameters)
    tensors = ParameterFile.decode(memoryview(file), "test").tensors
    assert [each.key for each in entries] == list(tensors)
    packed, plain = tensors.values()
    expected = [array[k, n] if n < 37 else 0.0 for p in range(3) for k in range(5) for n in range(16 * p, 16 * p + 16)]
    np.testing.assert_array_equal(packed.view(np.float32), np.array(expected, np.float32))
    np.testing.assert_array_equal(plain, array[0])


def test_writing_packed_parameters_takes_the_memory_of_one() -> None:
    arrays = {f"w{i}": np.ones((512, 512), np.float32) for i in range(16)}
    store = ParameterStore(arrays)
    for key in arrays:
        store.index(key, PANELS, (512, 512))
    tracemalloc.start()
    parameters, _ = pack_parameters(store)
    written = sum(len(piece) for piece in encode_parameters(parameters))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written > 16 << 20
    assert peak < 4 << 20
