"""On a GPU: indices that a call decides and that are out of bounds. Needs a compiler for GPUs on the same machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from motet.errors import CallError
from motet.runtime import Session, load
from motet.runtime.device import probe

_GPUS = probe("cuda")
_COMPILES = all(importlib.util.find_spec(name) is not None for name in ("triton", "torch_mlir", "onnx"))
pytestmark = [
    pytest.mark.cuda, pytest.mark.skipif(not _GPUS[0].available, reason=_GPUS[0].reason),
    pytest.mark.skipif(not _COMPILES, reason="nothing compiles for GPUs here; pip install 'motet[gpu,onnx]'"),
]
torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks") if _GPUS[0].available else None
TABLE = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
MESSAGE = r'Gather "rows": index 8 is outside of an axis of extent 8'


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    import onnx

    import motet

    kind = onnx.TensorProto
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "which"], ["y"], name="rows")], "main",
        [onnx.helper.make_tensor_value_info("table", kind.FLOAT, [8, 4]),
         onnx.helper.make_tensor_value_info("which", kind.INT64, ["n"])],
        [onnx.helper.make_tensor_value_info("y", kind.FLOAT, ["n", 4])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with load(motet.compile(model, devices="cuda"), devices="cuda:0") as opened:
        yield opened


def test_a_call_with_arrays_of_the_host_fails_and_the_next_is_right(session: Session) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(session(TABLE, np.array([0, 7, -1])), TABLE[[0, 7, -1]])
        with pytest.raises(CallError, match=MESSAGE):
            session(TABLE, np.array([0, 8, 1]))
        with pytest.raises(CallError, match="outside of an axis of extent 8"):
            session.submit(TABLE, np.array([-9, 0, 1])).result()


def test_the_next_call_on_a_stream_tells_of_the_one_before(session: Session) -> None:
    table = torch.from_numpy(TABLE).cuda()
    right, wrong = torch.tensor([1, 7, -8]).cuda(), torch.tensor([1, 8, 0]).cuda()
    for turn in range(6):  # the shorter ways of calling too
        assert torch.equal(session(table, right), table[right])
        assert torch.equal(session(table, wrong), table[torch.tensor([1, 7, 0])])  # brought to the border
        torch.cuda.synchronize()
        with pytest.raises(CallError, match=MESSAGE):
            session(table, right)
        assert torch.equal(session(table, right), table[right]), turn
