"""What each seed stands for. Seeds come in batches of one kind, which are compiled together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.compiling import Options, available_targets
from tests.fuzz.drawing import Says, draw_graph
from tests.fuzz.graph import Graph
from tests.fuzz.languages import LANGUAGES
from tests.fuzz.shapes import types_of

BATCH = 24
OPSETS = (18, 19, 20, 21, 22, 23)
_KINDS = {"onnx": 50, "onnx split": 6, "mlir": 22, "stablehlo": 10, "every language": 12}


@dataclass(frozen=True)
class Kind:
    """How a batch is tried: in which languages, how compiled, and the operators that all of the languages have."""

    name: str
    languages: tuple[str, ...]
    options: Options
    operators: frozenset[str] | None
    says: Says | None


def kind_of(seed: int) -> Kind:
    rng = random.Random(f"kind {seed // BATCH}")
    known = [k for k in _KINDS if all(language in LANGUAGES for language in _languages(k))]
    name = rng.choices(known, [_KINDS[k] for k in known])[0]
    languages = _languages(name)
    other = rng.choice(("host", "null")) if name.endswith("split") else ""
    options = Options(rng.choice(available_targets()), other, rng.choice((1, 1, 2)))
    sets = [s for language in languages if (s := LANGUAGES[language].operators) is not None]
    forms = [f for language in languages if (f := LANGUAGES[language].says) is not None]

    def says(op: str, *form: Any) -> bool:
        return all(one(op, *form) for one in forms)

    operators = frozenset.intersection(*sets) if sets else None
    return Kind(name, languages, options, operators, says if forms else None)


def _languages(name: str) -> tuple[str, ...]:
    return ("onnx", "mlir", "stablehlo") if name == "every language" else (name.split()[0],)


def program_of(seed: int) -> Graph:
    """The program of a seed."""
    kind = kind_of(seed)
    opset = random.Random(f"opset {seed // BATCH}").choice(OPSETS)
    dynamic = 0.0 if "stablehlo" in kind.languages else 0.25
    graph = draw_graph(seed, opset, kind.operators, kind.says, dynamic)
    if kind.operators is None or not graph.symbols:
        return graph
    if all(None not in shape for _, shape in types_of(graph).values()):
        return graph
    return draw_graph(seed, opset, kind.operators, kind.says, 0.0)  # only ONNX says extents that are calculated


def batch_of(seed: int) -> Sequence[int]:
    """The seeds that are tried together with one."""
    start = seed // BATCH * BATCH
    return range(start, start + BATCH)
