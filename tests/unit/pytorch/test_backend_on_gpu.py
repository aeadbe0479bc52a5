"""torch.compile(backend="motet") on a GPU: results as PyTorch's, on the caller's stream, with nothing waited for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import pytest

from motet.compiler.codegen.triton.compile.objects import TRITON
from motet.runtime.device import probe

_GPU = probe("cuda")[0]
_HERE = importlib.metadata.version("triton") if importlib.util.find_spec("triton") is not None else "none"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not _GPU.available, reason=_GPU.reason),
    pytest.mark.skipif(not _HERE.startswith(TRITON), reason=f"compiling needs Triton {TRITON}; there is {_HERE}"),
]

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks") if _GPU.available else None


@pytest.fixture(autouse=True)
def _inference():
    torch._dynamo.reset()
    with torch.no_grad():
        torch.manual_seed(3)
        yield
        torch.cuda.set_sync_debug_mode("default")


def compiled(module: Any, **settings: Any) -> Any:
    return torch.compile(module, backend="motet", **settings)


def layers(dtype: Any) -> Any:
    nn = torch.nn
    made = nn.Sequential(nn.Linear(96, 131), nn.GELU(), nn.LayerNorm(131), nn.Linear(131, 7))
    return made.to("cuda", dtype).eval()


def encoder(dtype: Any) -> Any:
    return torch.nn.TransformerEncoderLayer(96, 4, 192, batch_first=True).to("cuda", dtype).eval()


def near(got: Any, module: Any, x: Any, tolerance: float) -> None:
    """Compares with the module in f64."""
    assert got.is_cuda and got.dtype == x.dtype
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    want = module.double()(x.double())
    module.to(x.dtype).load_state_dict(kept)
    assert ((got.double() - want).abs().max() / want.square().mean().sqrt()).item() < tolerance


@pytest.mark.parametrize("make", [layers, encoder])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 6e-2)])
def test_results_are_those_of_the_module(make: Any, dtype: str, tolerance: float):
    module, x = make(getattr(torch, dtype)), torch.randn(3, 29, 96, device="cuda", dtype=getattr(torch, dtype))
    near(compiled(module)(x), module, x, tolerance)


def test_each_number_of_rows_has_its_program():
    module = layers(torch.float32)
    fast = compiled(module, dynamic=True)
    for rows in (3, 5, 64, 3):
        x = torch.randn(rows, 96, device="cuda")
        near(fast(x), module, x, 1e-4)


def test_changed_parameters_are_seen():
    module, x = layers(torch.float32), torch.randn(5, 96, device="cuda")
    fast = compiled(module)
    near(fast(x), module, x, 1e-4)
    module[0].weight.mul_(2)
    near(fast(x), module, x, 1e-4)


def test_a_call_waits_for_nothing_and_is_ordered_by_the_current_stream():
    module, x = layers(torch.float32), torch.randn(5, 96, device="cuda")
    fast = compiled(module)
    fast(x), fast(x)
    for stream in (torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            fast(x)  # the first call on a stream takes memory for it, and PyTorch may trace again
            torch.cuda.synchronize()
            y = torch.zeros_like(x)
            torch.cuda._sleep(2_000_000_000)
            y.copy_(x)
            torch.cuda.set_sync_debug_mode("error")
            result = fast(y) + 0
            torch.cuda.set_sync_debug_mode("default")
            assert not stream.query()
        stream.synchronize()
        near(result, module, x, 1e-4)


def test_a_call_can_be_captured_in_a_graph():
    module, x = layers(torch.float32), torch.randn(5, 96, device="cuda")
    fast = compiled(module)
    fast(x), fast(x)
    torch.cuda.synchronize()
    graph, given = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    with torch.cuda.graph(graph):
        result = fast(given)
    for _ in range(3):
        given.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        near(result, module, given, 1e-4)


def test_arguments_are_changed_and_results_are_views_as_in_torch():
    def work(x: Any, y: Any) -> tuple[Any, ...]:
        x.add_(1)
        return x.t(), (x @ y).relu(), y[1:3]

    x, y = torch.randn(64, 64, device="cuda"), torch.randn(64, 128, device="cuda")[:, ::2]
    ours, theirs = x.clone(), x.clone()
    found, expected = compiled(work)(ours, y), work(theirs, y)
    assert torch.equal(ours, theirs) and found[0].data_ptr() == ours.data_ptr()
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
