"""Calls with PyTorch's tensors on the host: the short way gives what the long one gives, and leaves it the rest."""

from __future__ import annotations

from typing import Any

import pytest

import motet
from motet.errors import CallError

torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")


def session_of(kind: str, sizes: str, body: str, result: str = "") -> Any:
    """`main(x)` of `sizes`, an element-wise `body` over %a that ends in %z."""
    dims = ", ".join(f"d{axis}" for axis in range(sizes.count("x")))
    iterators = ", ".join(['"parallel"'] * sizes.count("x"))
    result = result or kind
    text = f"""
    func.func @main(%x: tensor<{sizes}{kind}>) -> tensor<{sizes}{result}> {{
      %e = tensor.empty() : tensor<{sizes}{result}>
      %y = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
          iterator_types = [{iterators}]}} ins(%x : tensor<{sizes}{kind}>) outs(%e : tensor<{sizes}{result}>) {{
      ^bb0(%a: {kind}, %o: {result}):
        {body}
        linalg.yield %z : {result}
      }} -> tensor<{sizes}{result}>
      return %y : tensor<{sizes}{result}>
    }}"""
    return motet.load(motet.compile(text))


DOUBLED = "%z = arith.addf %a, %a : "
FORMS = {
    "f32": ("f32", "7x13x", DOUBLED + "f32", "", torch.float32),
    "bf16": ("bf16", "3x5x", DOUBLED + "bf16", "", torch.bfloat16),
    "large bf16": ("bf16", "1025x1023x", DOUBLED + "bf16", "", torch.bfloat16),
    "integers": ("i64", "11x", "%z = arith.addi %a, %a : i64", "", torch.int64),
    "truth": ("f32", "9x", "%c = arith.constant 0.0 : f32\n%z = arith.cmpf ogt, %a, %c : f32", "i1", torch.float32),
    "a scalar": ("f64", "", DOUBLED + "f64", "", torch.float64),
    "nothing": ("f32", "0x4x", DOUBLED + "f32", "", torch.float32),
}


@pytest.mark.parametrize("name", FORMS)
def test_calls_again_and_again(name: str) -> None:
    kind, sizes, body, result, dtype = FORMS[name]
    session = session_of(kind, sizes, body, result)
    shape = [int(size) for size in sizes.split("x")[:-1]]
    results: list[Any] = []
    for seed in range(4):
        torch.manual_seed(seed)
        x = (torch.randn(shape, dtype=torch.float32) * 5).to(dtype)
        found, expected = session(x), x > 0 if result else x + x
        assert type(found) is torch.Tensor and found.dtype == expected.dtype and found.is_contiguous()
        assert torch.equal(found, expected)
        results.append((found, expected))
    for found, expected in results:  # each is memory of its own
        assert torch.equal(found, expected)


def test_what_the_short_way_does_not_take() -> None:
    session = session_of("f32", "4x6x", DOUBLED + "f32")
    x = torch.randn(4, 6)
    for _ in range(3):
        session(x)
    for other in (torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2], x.numpy(), torch.randn(1, 6).expand(4, 6)):
        found = session(other)
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(other) * 2)
    out = torch.empty(4, 6)
    assert session(x, out=out) is out and torch.equal(out, x + x)
    wrong = [torch.randn(4, 5), x.double(), torch.randn(4, 6, device="meta"), x.to_sparse()]
    for other in wrong:
        with pytest.raises((CallError, RuntimeError, BufferError)):
            session(other)
    with pytest.raises((CallError, RuntimeError, BufferError), match="grad"):
        session(x.clone().requires_grad_())
    with pytest.raises(CallError, match="2 arguments given, 1 expected"):
        session(x, x)
    assert torch.equal(session(x), x + x)
    session.close()
    with pytest.raises(CallError, match="closed"):
        session(x)
