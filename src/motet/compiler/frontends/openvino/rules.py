"""The rule of every operator that has a lowering."""

from __future__ import annotations

from motet.compiler.frontends.openvino import (
    activations,
    beams,
    boxes,
    cells,
    control,
    convolutions,
    elementwise,
    embeddings,
    gathers,
    movement,
    norms,
    ordering,
    pools,
    products,
    quantised,
    reductions,
    resizing,
    sequences,
    shapes,
    slices,
    spectral,
)
from motet.compiler.frontends.openvino.writer import Rules

RULES: Rules = {
    **activations.RULES, **beams.RULES, **boxes.RULES, **cells.RULES, **control.RULES, **convolutions.RULES,
    **elementwise.RULES, **embeddings.RULES, **gathers.RULES, **movement.RULES, **norms.RULES, **ordering.RULES,
    **pools.RULES, **products.RULES, **quantised.RULES, **reductions.RULES, **resizing.RULES, **sequences.RULES,
    **shapes.RULES, **slices.RULES, **spectral.RULES,
}
