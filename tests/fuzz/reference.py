"""What a program is to calculate for given inputs, with the errors that are allowed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tests.fuzz.dtypes import NAMES
from tests.fuzz.graph import Array, Graph
from tests.fuzz.operators import evaluate
from tests.fuzz.tracked import Invalid, Tracked, exact


def calculate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Tracked]:
    """Every value of a graph. Raises Invalid where ONNX does not allow the call."""
    known = {name: exact(array, NAMES[array.dtype]) for name, array in (*feeds.items(), *graph.constants.items())}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [known[name] if name else None for name in node.inputs]
            results = evaluate(node.op, node.attributes, operands)
            if any(result.value.size > 1 << 20 for result in results):
                raise Invalid("too large for the reference")
            known.update(zip(node.outputs, results, strict=True))
    return known
