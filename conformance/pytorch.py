"""Compiles 150 PyTorch architectures and compares them with PyTorch.

    python -m conformance.pytorch RESULTS.tsv                     # all cases without a line in RESULTS.tsv
    python -m conformance.pytorch RESULTS.tsv --match 'gpt|lstm'
    python -m conformance.pytorch RESULTS.tsv --tenth             # the fixed tenth of `make test`

Each case runs in a separate process with a time limit, so that a crash costs one case. RESULTS.tsv gets a line for
each: name, ok | wrong | refused | crash, reason, seconds. Expected values are PyTorch's, in f64.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import copy
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 240  # per case
TOLERANCE = 1e-3  # of the largest difference, relative to the root mean square of the expected values


class Outcome(NamedTuple):
    name: str
    verdict: str
    reason: str
    seconds: float

    def line(self) -> str:
        reason = re.sub(r"\s+", " ", self.reason)[:400]
        return f"{self.name}\t{self.verdict}\t{reason}\t{self.seconds:.1f}"


def architectures() -> list[Any]:
    """All cases, with unique names."""
    from conformance import architectures_own, architectures_timm, architectures_transformers

    found = [*architectures_own.ARCHITECTURES, *architectures_timm.ARCHITECTURES,
             *architectures_transformers.ARCHITECTURES]
    return sorted(found, key=lambda case: case.name)


def tenth(cases: Sequence[Any]) -> list[Any]:
    """A fixed tenth of the cases, spread over the list."""
    return list(cases[::10])


def run(cases: Iterable[Any], seconds: float = SECONDS) -> Iterable[Outcome]:
    """The outcome of each case. Libraries are loaded once, and the processes of cases are forked."""
    import timm  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    for case in cases:
        start = time.monotonic()
        receive, send = fork.Pipe(duplex=False)
        process = fork.Process(target=_child, args=(case, send))
        process.start()
        send.close()
        verdict, reason = _result(process, receive, seconds)
        yield Outcome(case.name, verdict, reason, time.monotonic() - start)


def _result(process: Any, receive: Any, seconds: float) -> tuple[str, str]:
    try:
        if not receive.poll(seconds):
            process.kill()
            return "crash", f"it took longer than {seconds:.0f} seconds"
        return receive.recv()
    except EOFError:
        process.join()
        return "crash", f"its process ended with {process.exitcode}"
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()


def _child(case: Any, send: Any) -> None:
    from motet.errors import CompileError, OptionError, WorkerCrash

    try:
        answer = check(case)
    except (CompileError, OptionError) as error:
        answer = "refused", str(error)
    except WorkerCrash as error:
        answer = "crash", str(error)
    except Exception as error:  # any exception of the model's code or the compiler is the case's outcome
        answer = "crash", f"{type(error).__name__}: {error}"
    send.send(answer)


def check(case: Any) -> tuple[str, str]:
    """Compile one architecture, run it, and compare its results with PyTorch's."""
    import torch

    torch.manual_seed(0)
    module, inputs = case.build()
    _vary(module.eval())
    with torch.no_grad():
        runner = _compiled(case, module, inputs)
        worst = 0.0
        for given in [inputs] + ([case.inputs_again()] if case.inputs_again else []):
            found = _tensors(runner(given))
            difference, reason = _difference(found, _expected(module, given), _tensors(_call(module, given)))
            if reason:
                return "wrong", reason
            worst = max(worst, difference)
    return "ok", f"{worst:.1e}"


def _compiled(case: Any, module: Any, inputs: Any) -> Any:
    """A function that calls the compiled program with inputs like `inputs`."""
    import torch

    import motet

    if case.through_compile:
        import torch._dynamo

        torch._dynamo.reset()
        fast: Any = torch.compile(module, backend="motet", fullgraph=True)
        return lambda given: _refuse_fallback(lambda: _call(fast, given))
    artifact = motet.compile(module, inputs=inputs, dynamic_shapes=case.dynamic_shapes, devices="host")
    session = motet.load(artifact)
    return lambda given: session(*_tensors(given))


def _refuse_fallback(call: Any) -> Any:
    """Make an error of the backend's fallback, which leaves graphs that it cannot compile to PyTorch with a warning."""
    import logging

    from motet.errors import CompileError

    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Handler()
    logging.getLogger("motet").addHandler(handler)
    try:
        result = call()
    finally:
        logging.getLogger("motet").removeHandler(handler)
    if said:
        raise CompileError(said[0])
    return result


def _vary(module: Any) -> None:
    """Vary parameters whose elements are all equal, such as a classifier's zeros, which would hide what is computed
    before them."""
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and parameter.numel() > 1 and (parameter == parameter.flatten()[0]).all():
                parameter.add_(torch.randn_like(parameter) * 0.1)


def _call(module: Any, inputs: Any) -> Any:
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def _expected(module: Any, inputs: Any) -> list[Any]:
    """PyTorch's results in f64, or in f32 if the model's code requires it."""
    import torch
    from torch.utils._pytree import tree_map

    def wide(value: Any) -> Any:
        is_real = isinstance(value, torch.Tensor) and value.dtype == torch.float32
        return value.double() if is_real else value

    try:
        return _tensors(_call(copy.deepcopy(module).double(), tree_map(wide, inputs)))
    except (RuntimeError, TypeError, ValueError):
        return _tensors(_call(module, inputs))


def _tensors(value: Any) -> list[Any]:
    """The tensors of nested results, in order."""
    import torch
    from torch.utils._pytree import tree_flatten

    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _difference(found: Sequence[Any], expected: Sequence[Any], eager: Sequence[Any]) -> tuple[float, str]:
    """The largest difference relative to the root mean square, and why it is too large. Ten times PyTorch's own error
    in f32 is allowed."""
    import torch

    if len(found) != len(expected):
        return 0.0, f"{len(found)} results instead of {len(expected)}"
    worst = 0.0
    for place, (got, want, plain) in enumerate(zip(found, expected, eager, strict=True)):
        if got.shape != plain.shape or got.dtype != plain.dtype:
            return 0.0, f"result {place} is {got.dtype}{list(got.shape)} instead of {plain.dtype}{list(plain.shape)}"
        if not plain.is_floating_point() and not plain.is_complex():
            if not torch.equal(got, plain):
                return 0.0, f"result {place}: {int((got != plain).sum())} of {plain.numel()} integers differ"
            continue
        difference, own = _relative(got, want), _relative(plain, want)
        if not difference <= max(TOLERANCE, 10 * own):
            return difference, f"result {place} differs by {difference:.1e}, PyTorch's f32 by {own:.1e}"
        worst = max(worst, difference)
    return worst, ""


def _relative(found: Any, expected: Any) -> float:
    wide = expected.to(found.dtype).double() if not found.is_complex() else expected
    same = (found == expected) | (torch_isnan(found) & torch_isnan(expected))
    gap = (found.to(wide.dtype) - wide).abs()
    gap = gap.masked_fill(same, 0.0)
    finite = wide.abs()[wide.abs() < float("inf")]
    scale = float(finite.pow(2).mean().sqrt()) if finite.numel() else 1.0
    return float(gap.max()) / (scale or 1.0) if gap.numel() else 0.0


def torch_isnan(value: Any) -> Any:
    return value != value


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="conformance.pytorch")
    parser.add_argument("results", type=Path)
    parser.add_argument("--match", default="", help="only cases whose names this regular expression matches")
    parser.add_argument("--tenth", action="store_true", help="only a fixed tenth of them")
    parser.add_argument("--again", action="store_true", help="repeat the cases that are not ok in RESULTS")
    given = parser.parse_args(arguments)
    known = _known(given.results)
    cases = [case for case in architectures() if re.search(given.match, case.name)]
    cases = tenth(cases) if given.tenth else cases
    skipped = {name for name, verdict in known.items() if verdict == "ok" or not given.again}
    with given.results.open("a") as file:
        for outcome in run(case for case in cases if case.name not in skipped):
            known[outcome.name] = outcome.verdict
            print(outcome.line(), file=file, flush=True)
            print(outcome.line()[:200], flush=True)
    counts = {verdict: sum(known.get(case.name) == verdict for case in cases) for verdict in
              ("ok", "wrong", "refused", "crash")}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), "of", len(cases))
    return 0 if counts["ok"] == len(cases) else 1


def _known(results: Path) -> dict[str, str]:
    """The verdicts of an earlier run, the last one of each name."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {parts[0]: parts[1] for line in lines if len(parts := line.split("\t")) >= 4}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
