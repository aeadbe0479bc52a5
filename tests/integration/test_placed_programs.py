"""Programs over several devices give what the same programs give on one, wherever their operations run."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integration.placed import build_placed, expected, random_program

from motet.runtime import Session, load

# The second flag's device is the host too where the binding wants it.
FLAGS = ("a=host", "b=null[1],host", "c=null[2],@a")
BINDINGS: list[dict[str, str]] = [{}, {"c": "null/1"}, {"b": "host", "c": "host"}, {"b": "null/3?queues=1"}]


def results_of(session: Session, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = session(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def check(session: Session, inputs: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for _ in range(2):  # the second call takes what the first prepared
        for result, value in zip(results_of(session, inputs), wanted, strict=True):
            np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_agree_with_the_oracle(seed: int) -> None:
    program = random_program(seed)
    session = load(build_placed(program.graph, FLAGS), devices=BINDINGS[seed % len(BINDINGS)], threads=2)
    with session:
        check(session, program.inputs, expected(program.graph, program.inputs))
