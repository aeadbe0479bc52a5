"""`fuse-siblings=false`: convolutions of one tensor that meet are kernels of their own, which may run at once."""

from __future__ import annotations

import numpy as np
import pytest

import motet
import motet.builder as b
from motet.errors import OptionError

pytestmark = pytest.mark.usefixtures("all_levels")

WEIGHTS = np.random.default_rng(3).standard_normal((2, 5, 3, 3, 3), np.float32)


def two_convolutions() -> b.Graph:
    with b.Graph("main") as graph:
        x = graph.input("x", (2, 3, 9, 11))
        weights = [graph.constant(values, name=f"w{number}") for number, values in enumerate(WEIGHTS)]
        one, other = (b.conv2d(x, weight, padding=1) for weight in weights)
        graph.result(one + other, "y")
    return graph


def test_siblings_are_kernels_that_need_nothing_of_one_another():
    graph = two_convolutions()
    x = np.random.default_rng(4).standard_normal((2, 3, 9, 11), np.float32)
    together = motet.compile(graph)
    apart = motet.compile(graph, options={"fuse-siblings": "false"})
    dispatches = [c for c in apart.manifest.variants[0].schedules["main"].commands if c.op == "dispatch"]
    names = list(dict.fromkeys(command.kernel for command in dispatches))
    assert len(names) > len({c.kernel for c in together.manifest.variants[0].schedules["main"].commands})
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    expected = np.einsum("bchwij,fcij->bfhw", windows, WEIGHTS.sum(0))
    for artifact in (together, apart):
        with motet.load(artifact) as session:
            np.testing.assert_allclose(session(x), expected, rtol=1e-4, atol=1e-4)


def test_the_option_is_true_or_false():
    with pytest.raises(OptionError, match="option fuse-siblings=no: expected true or false"):
        motet.compile(two_convolutions(), options={"fuse-siblings": "no"})
