"""Calls from an event loop: `await session.acall(x)`, several at once, beside other work of the loop.

    python examples/asyncio_calls.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

import motet

CALLS = 16


async def main() -> None:
    artifact = motet.compile(Path(__file__).parent / "fragment.mlir", devices="host")
    random = np.random.default_rng(0)
    weights = random.standard_normal((128, 128), np.float32)
    inputs = [random.standard_normal((64, 128), np.float32) for _ in range(CALLS)]
    results = [np.empty((64, 128), np.float32) for _ in range(CALLS)]
    with motet.load(artifact, in_flight=4) as session:
        other = asyncio.create_task(asyncio.sleep(0, "the loop ran other work"))
        await asyncio.gather(*(session.acall(x, weights, y) for x, y in zip(inputs, results, strict=True)))
        print(await other)
    for x, y in zip(inputs, results, strict=True):
        np.testing.assert_allclose(y, x.astype("f8") @ weights + x, rtol=1e-4, atol=1e-4)
    print(f"{CALLS} calls: equal to numpy")


if __name__ == "__main__":
    asyncio.run(main())
