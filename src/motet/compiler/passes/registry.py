"""The registry of passes by name. A pass is loaded when it is requested.

The pass `fold-transfers` is the class `FoldTransfers` in `fold_transfers.py`, in the package that `PACKAGES` lists it
under. The names of pipelines (`pipelines.py`) and IREE's names of passes (`iree_names.py`) stand for several passes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from motet.compiler.passes.iree_names import ALIASES
from motet.compiler.passes.pipelines import PIPELINES, Step
from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.compiler.passes.base import AnyPass

PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "motet.compiler.frontends": ("crop-pads", "lower-complex-functions", "read-value-extents"),
    "motet.compiler.frontends.iree": ("resolve-flow",),
    "motet.compiler.frontends.gpu": ("gpu-concurrency", "lower-launches", "map-loops-to-gpu"),
    "motet.compiler.build": ("lower-to-tensors", "normal-form"),
    "motet.compiler.placement": (
        "anchor-operations", "annotate-affinities", "assign-devices", "check-code", "erase-devices", "fold-transfers",
        "inline-calls", "insert-transfers", "materialize-devices", "outline-loops", "outline-regions", "place",
        "place-automatically", "place-by-name", "place-loops-on-fallback", "place-operations", "resolve-aliases",
        "resolve-globals", "resolve-on-device", "resolve-promises", "resolve-states", "rotate-loops",
        "select-branches", "settle-undefined", "unroll-placed-loops", "verify-devices",
    ),
    "motet.compiler.sharding": ("shard",),
    "motet.compiler.passes.normalise": (
        "collapse-broadcasts", "decompose-softmax", "drop-casts", "fold-empty-tensors",
        "fold-numbers", "fold-uninitialized-slices", "hoist-constants", "lower-transposed-conv", "repeat-extracts",
        "resolve-extracts", "resolve-reshapes", "reuse-sorted-extents", "simplify-sizes", "slice-after-splitting",
        "slice-extracts", "split-groups", "store-scalar-results", "transposed-conv-by-phases", "window-scatters",
    ),
    "motet.compiler.passes.fuse": (
        "collect-insertions", "compute-gathered", "compute-slices", "distribute-concats", "expand-products",
        "flatten-concats", "fold-constants", "fold-widening-casts", "fuse-attention", "fuse-multi-gemm",
        "hoist-loop-invariants", "hoist-loop-products", "hold-rows", "inline-gathers", "inline-indices",
        "join-loop-products", "join-small-groups", "keep-block-weights", "merge-groups", "narrow-products",
        "narrow-quantised-products", "outline-kernels", "quantise-products", "recompute-places", "reduce-rows-first",
        "repeat-element-wise", "reshape-rows", "scatter-in-place", "sink-dequantisations", "sink-reshapes",
        "unroll-loops",
    ),
})
PASSES: Mapping[str, str] = MappingProxyType({
    name: f"{package}.{name.replace('-', '_')}" for package, names in PACKAGES.items() for name in names
})


def make(text: str, given: Mapping[str, Any] | None = None) -> AnyPass:
    """The pass that `text`, `NAME` or `NAME{OPTIONS}`, describes; `given` has fields that cannot be given as text.
    Raises OptionError for an unknown name or option."""
    name = name_of(text)
    if name not in PASSES:
        raise OptionError(f"pass {name}: unknown; Motet's passes: {', '.join(sorted(PASSES))}")
    kind = getattr(importlib.import_module(PASSES[name]), class_name(name))
    made: AnyPass = kind.parse(options_of(text))
    return replace(made, **given) if given else made


def name_of(text: str) -> str:
    """The name of the pass that `text` describes."""
    return text.partition("{")[0].strip()


def options_of(text: str) -> str:
    """The options of the pass that `text` describes, without braces."""
    return text.partition("{")[2].rpartition("}")[0]


def class_name(name: str) -> str:
    """The class name of the pass `name`: `FoldTransfers` for `fold-transfers`."""
    return "".join(word.capitalize() for word in name.split("-"))


def expand(text: str) -> tuple[Step, ...] | None:
    """The steps of one part of a textual pipeline: a pass, a pipeline, or a pass of IREE's. None for passes of upstream
    MLIR. Raises OptionError for options of a pipeline or pass without options."""
    name, options = name_of(text), options_of(text)
    if name in PASSES:
        return (text.strip(),)
    if name in ALIASES:
        return ALIASES[name].steps(name, options)
    if name not in PIPELINES:
        return None
    if options.strip():
        raise OptionError(f"pipeline {name}: option {options.strip()}: unknown; it takes no options")
    return PIPELINES[name]
