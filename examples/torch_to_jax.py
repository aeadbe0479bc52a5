"""Tensors of PyTorch in, arrays of JAX out, through DLPack, and back, with the program's memory shared and not copied.

    make frameworks
    .frameworks/bin/python examples/torch_to_jax.py
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import torch

import motet


def main() -> None:
    session = motet.load(motet.compile(Path(__file__).parent / "fragment.mlir", devices="host"))
    x, weights = torch.randn(64, 128), torch.randn(128, 128)
    y = torch.empty(64, 128)
    session(x, weights, y)  # reads and writes PyTorch's memory
    expected = x.double().numpy() @ weights.double().numpy() + x.double().numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
    print("PyTorch's tensors: equal to numpy")

    in_jax = jax.dlpack.from_dlpack(y)
    print(f"in JAX without a copy: {in_jax.unsafe_buffer_pointer() == y.data_ptr()}")
    again = torch.empty(64, 128)
    session(in_jax, jax.dlpack.from_dlpack(weights), again)  # JAX's arrays are inputs as well
    np.testing.assert_allclose(again.numpy(), expected @ weights.double().numpy() + expected, rtol=1e-3, atol=1e-2)
    print("JAX's arrays: equal to numpy")


if __name__ == "__main__":
    main()
