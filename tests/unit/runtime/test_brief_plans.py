"""Plans over instances of the host whose steps could run at once, but for so short that they do not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integration.placed import build_placed

from motet.artifact.reader import Artifact
from motet.runtime import load
from motet.runtime.instance import Instance
from motet.runtime.plan_executor import PlacedInstance


def branches(extent: str) -> Artifact:
    """Two operations that need nothing of one another, on two devices, and one that needs both."""
    tensor = f"tensor<{extent}xf32>"
    text = f"""
func.func @main(%x: {tensor}) -> {tensor} {{
  %0 = math.exp %x {{motet.affinity = "a"}} : {tensor}
  %1 = arith.mulf %x, %x {{motet.affinity = "b"}} : {tensor}
  %2 = arith.subf %1, %0 {{motet.affinity = "a"}} : {tensor}
  return %2 : {tensor}
}}
"""
    return build_placed(text, ("a=host", "b=host"), ("x86-64-v3",))


@pytest.mark.parametrize(("extent", "count", "kind"), [
    ("7", 7, Instance), ("2000000", 2_000_000, PlacedInstance), ("?", 7, PlacedInstance),
])
def test_only_steps_that_take_their_time_go_to_devices_of_their_own(extent: str, count: int, kind: type) -> None:
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    with load(branches(extent), devices={"a": "host/1", "b": "host/2"}, threads=1) as session:
        for _ in range(3):
            np.testing.assert_allclose(session(x), x * x - np.exp(x), rtol=1e-4, atol=1e-4)
        (instance,) = session["main"]._instances.values()  # pyright: ignore[reportPrivateUsage]
        assert type(instance) is kind
