"""The orders of passes, as data. A step is a pass by its name, with options if it has some, or passes of upstream.

`motet opt` runs each by its name in `PIPELINES`, as a pass of its own: `motet opt model.mlir --pipeline normalise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CLEAN = "canonicalize,cse"


@dataclass(frozen=True)
class Upstream:
    """Passes of upstream MLIR, as a pipeline in text."""

    pipeline: str


@dataclass(frozen=True)
class Cleaned:
    """Passes that are followed by upstream's `CLEAN` if one of them changed anything."""

    passes: tuple[str, ...]


Step = str | Upstream | Cleaned

# What frontends return → canonical linalg.generic, constants as parameters. Upstream's canonicalisation would undo
# reuse-sorted-extents and store-loop-scalars: it runs before them for the last time.
NORMALISE: tuple[Step, ...] = (
    "decompose-softmax",
    "fold-empty-tensors",
    "fold-uninitialized-slices",
    "drop-casts",
    "resolve-reshapes",
    Upstream("func.func(linalg-generalize-named-ops),canonicalize,cse,canonicalize"),
    Cleaned(("simplify-sizes", "collapse-broadcasts")),
    Cleaned(("slice-extracts", "resolve-extracts")),
    "slice-after-splitting",
    Cleaned(("lower-transposed-conv{phases=false}", "split-groups")),
    "reuse-sorted-extents",
    "store-loop-scalars",
    "hoist-constants",
)

# A normalised program → one whose kernels are larger on GPUs, for targets that have attention as one kernel.
FUSE_FOR_GPU: tuple[Step, ...] = (
    "unroll-loops",
    Cleaned(("lower-transposed-conv",)),
    "merge-groups",
    "fold-widening-casts",
    "fuse-attention",
    "reshape-rows",
    "fold-widening-casts{all-readers=true}",
    "distribute-concats",
    "sink-reshapes",
    "inline-indices",
    "fuse-multi-gemm",
)

# A normalised program → one whose kernels are larger on processors, for all other targets.
FUSE_FOR_CPU: tuple[Step, ...] = ("expand-products",)

# A normalised program → one private function for each kernel; those that read constants alone have run.
OUTLINE: tuple[Step, ...] = ("outline-kernels", "fold-constants")

# A normalised program → one private function for each kernel; those that read constants alone have run.
READ_DEVICES: tuple[str, ...] = ("materialize-devices", "resolve-promises", "resolve-states", "resolve-globals")

PIPELINES: Mapping[str, tuple[Step, ...]] = MappingProxyType({
    "normalise": NORMALISE,
    "fuse-for-cpu": FUSE_FOR_CPU,
    "fuse-for-gpu": FUSE_FOR_GPU,
    "outline": OUTLINE,
    "read-devices": READ_DEVICES,
})
