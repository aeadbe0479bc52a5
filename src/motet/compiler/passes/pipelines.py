"""The orders of passes, as data. A step is a pass by name, with options if needed, or a pipeline of upstream's passes.

`motet opt` runs each pipeline in `PIPELINES` by its name, like a pass: `motet opt model.mlir --pipeline normalise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CLEAN = "canonicalize,cse"


@dataclass(frozen=True)
class Upstream:
    """A textual pipeline of upstream MLIR's passes."""

    pipeline: str


@dataclass(frozen=True)
class Cleaned:
    """Passes, followed by upstream's `CLEAN` if one of them changed anything."""

    passes: tuple[str, ...]


Step = str | Upstream | Cleaned

# Output of frontends → canonical linalg.generic, constants as parameters. Upstream's canonicalisation would undo
# reuse-sorted-extents and store-scalar-results, so it runs before them for the last time.
NORMALISE: tuple[Step, ...] = (
    "decompose-softmax",
    "fold-empty-tensors",
    "fold-uninitialized-slices",
    "drop-casts",
    "resolve-reshapes",
    Upstream("func.func(linalg-generalize-named-ops),canonicalize,cse,canonicalize"),
    Cleaned(("simplify-sizes", "collapse-broadcasts", "fold-numbers")),
    Cleaned(("slice-extracts", "resolve-extracts", "repeat-extracts", "window-scatters")),
    "slice-after-splitting",
    Cleaned(("lower-transposed-conv{phases=false}", "split-groups")),
    "reuse-sorted-extents",
    "store-scalar-results",
    "hoist-constants",
)

# A normalised program → one with larger kernels, for GPU targets that support attention as one kernel.
FUSE_FOR_GPU: tuple[Step, ...] = (
    "hoist-loop-invariants", "join-loop-products", "hoist-loop-products",
    "unroll-loops",
    Cleaned(("lower-transposed-conv",)),
    "merge-groups",
    "fold-widening-casts",
    "narrow-quantised-products{symmetric=true}",
    "fuse-attention",
    "reshape-rows",
    "fold-widening-casts{all-readers=true}",
    "compute-slices",
    "flatten-concats",
    "distribute-concats",
    "sink-reshapes",
    "inline-indices",
    Cleaned(("compute-gathered", "resolve-extracts")),
    "inline-gathers",
    "collect-insertions",
    "recompute-places",
    "reduce-rows-first",
    "hold-rows",
    "repeat-element-wise",
    "fuse-multi-gemm",
    "join-small-groups",
)

# A normalised program → one with larger kernels, for all other targets.
FUSE_FOR_CPU: tuple[Step, ...] = (
    "fuse-attention", "hoist-loop-invariants", "join-loop-products", "hoist-loop-products",
    "unroll-loops{products=true most=512}", "expand-products", "narrow-quantised-products", "keep-block-weights",
    "sink-dequantisations", Cleaned(("transposed-conv-by-phases",)),
    "compute-slices", "flatten-concats", "collect-insertions", "scatter-in-place", "inline-gathers", "reshape-rows",
    "repeat-element-wise",
)

# A normalised program → one private function for each kernel; those that read constants alone have run.
OUTLINE: tuple[Step, ...] = ("outline-kernels", "fold-constants")

# What a program says of devices, in any syntax → Motet's, with which placement works.
READ_DEVICES: tuple[str, ...] = ("materialize-devices", "resolve-promises", "resolve-states", "resolve-globals")

# What dialects that are lowered by a frontend say of devices → transfers, which lowerings leave alone.
ANCHOR_DEVICES: tuple[str, ...] = ("inline-calls", "anchor-operations")

PIPELINES: Mapping[str, tuple[Step, ...]] = MappingProxyType({
    "normalise": NORMALISE,
    "fuse-for-cpu": FUSE_FOR_CPU,
    "fuse-for-gpu": FUSE_FOR_GPU,
    "outline": OUTLINE,
    "read-devices": READ_DEVICES,
    "anchor-devices": ANCHOR_DEVICES,
})
