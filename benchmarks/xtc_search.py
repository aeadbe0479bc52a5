"""Searches one operator by an XTC back end: its default schedule, then random samples of its richest strategy.

    XTC_PYTHON -m benchmarks.xtc_search < request.json      prints a line for each schedule, the default one first

The module runs without Motet, in the environment of XTC; `benchmarks.lab_peers` starts it. A schedule whose results
differ from numpy's has an error instead of a time.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.xtc_peer import graph_of

STRATEGY = "tile_ppwrprp_vr"  # three levels of tiles, vectors, and a buffer for the result; products and convolutions
LEVEL = 3  # XTC's highest level without a search


def expected(operator: str, operands: Sequence[Any], stride: int) -> Any:
    """The result by numpy, in f64."""
    first, *others = (each.astype(np.float64) for each in operands)
    if operator == "softmax":
        powers = np.exp(first - first.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if operator.startswith("matmul"):
        product = first @ others[0]
        return np.maximum(product, 0) if operator == "matmul_relu" else product
    windows = np.lib.stride_tricks.sliding_window_view(first, others[0].shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcrs,rsc->nhwc" if others[0].ndim == 3 else "nhwcrs,rscf->nhwf", windows, others[0],
                     optimize=True)


def report(measured: Callable[[], tuple[float, Any]], wanted: Any) -> float | None:
    """Print the seconds of a schedule as a line, or why there are none; both are read by `lab_peers`."""
    try:
        seconds, result = measured()
        if not np.allclose(result, wanted, rtol=1e-3, atol=1e-3):
            raise ValueError(f"wrong results: max abs error {np.abs(result - wanted).max():.3g}")
    except Exception as error:  # whatever a back end raises for a schedule that it cannot compile
        said = str(error).strip().splitlines() or [type(error).__name__]
        print(json.dumps({"error": said[0]}), flush=True)
        return None
    print(json.dumps({"seconds": seconds}), flush=True)
    return seconds


def _samples(strategy: Any, trials: int, seconds: float) -> Iterator[Any]:
    end = time.monotonic() + seconds
    yield strategy.default_schedule(LEVEL)
    for sample in strategy.sample(trials, seed=0):
        if time.monotonic() > end:
            return
        yield sample


def _main() -> None:
    given = json.loads(sys.stdin.read())
    operands = [np.load(file) for file in given["operands"]]
    graph, shape = graph_of(given["operator"], [each.shape for each in operands], given["stride"])
    wanted = expected(given["operator"], operands, given["stride"])
    strategies: Any = importlib.import_module("xtc.search.strategies").Strategies
    make: Any = importlib.import_module(f"xtc.backends.{given['backend']}").Backend
    strategy = strategies.create(STRATEGY, graph, threads=given["threads"])
    for number, sample in enumerate(_samples(strategy, given["trials"], given["seconds"])):
        def measured(number: int = number, sample: Any = sample) -> tuple[float, Any]:
            backend = make(graph)
            scheduler = backend.get_scheduler()
            strategy.generate(scheduler, sample)
            compiler = backend.get_compiler(shared_lib=True, dump_file=f"{given['folder']}/code{number}")
            out = np.zeros(shape, np.float32)
            seconds, code, error = compiler.compile(scheduler.schedule()).get_evaluator(
                parameters=([*operands], [out]), repeat=3, number=1, min_repeat_ms=5).evaluate()
            if code:
                raise ValueError(error)
            return min(seconds), out

        report(measured, wanted)


if __name__ == "__main__":
    _main()
