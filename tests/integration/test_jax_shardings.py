"""JAX programs divided over eight devices give JAX's numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import motet

pytest.importorskip("jax", reason="needs JAX: make frameworks")

# Runs in a process of its own: the number of JAX's devices is decided when JAX starts.
_PROGRAM = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
on = lambda *axes: NamedSharding(mesh, P(*axes))
random = np.random.default_rng(0)
x, up, down = (random.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (16, 32), (32, 16)))

def layer(x, up, down):
    hidden = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ up), on("data", "model"))
    return jax.nn.softmax(hidden @ down, -1)

def local(x, up):
    total = jax.lax.psum(x @ up, "model") + jax.lax.axis_index("data")
    return total - jax.lax.pmax(total, "data")

def moved(x):
    there = jax.lax.all_to_all(x, "model", 0, 1, tiled=True).sum()
    next_one = jax.lax.ppermute(x, "model", [(0, 1), (1, 2)])
    part = jax.lax.psum_scatter(next_one, "model", scatter_dimension=0, tiled=True).sum()
    return jax.lax.all_gather(x, "model", axis=1, tiled=True) + there + part

def by_hand(f, specs):
    return jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("data", None), check_vma=False)

cases = {
    "layer": (jax.jit(layer, in_shardings=(on("data", None), on(None, "model"), on("model", None))), (x, up, down)),
    "local": (jax.jit(by_hand(local, (P("data", "model"), P("model", None)))), (x, up)),
    "moved": (jax.jit(by_hand(moved, (P("data", "model"),))), (x,)),
}
for name, (program, inputs) in cases.items():
    open(f"{sys.argv[1]}/{name}.mlir", "w").write(program.lower(*inputs).as_text())
    np.savez(f"{sys.argv[1]}/{name}.npz", *inputs, expected=np.asarray(program(*inputs)))
"""


@pytest.mark.slow
def test_jax_programs_over_eight_devices_give_jaxs_numbers(tmp_path: Path):
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], check=True, timeout=300)
    for name in ("layer", "local", "moved"):
        artifact = motet.compile(tmp_path / f"{name}.mlir")
        assert len(artifact.manifest.devices) == 8
        with np.load(tmp_path / f"{name}.npz") as stored:
            inputs = [stored[key] for key in stored.files if key != "expected"]
            np.testing.assert_allclose(
                motet.load(artifact, threads=1)(*inputs), stored["expected"], rtol=1e-5, atol=1e-5, err_msg=name
            )
