"""The output of `motet compile --print-after`, `--print-changed` and `--time-passes` while passes run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.job import PassReports


@dataclass
class _Row:
    """The runs of a pass, or of a pipeline, within one stage."""

    seconds: float = 0.0
    runs: int = 0


class PassReporter:
    """An observer of passes (`running.py`) that hands text to `write`, a block or line at a time. What runs within
    nothing else is a stage: a pipeline, or a pass with the passes that it runs."""

    def __init__(self, wanted: PassReports, write: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._write = write
        self._stages: dict[str, dict[str, _Row]] = {}  # in the order of their first runs; the stage is among its rows
        self._stage = ""
        self._begin = time.perf_counter()

    @contextlib.contextmanager
    def watch(self, name: str, module: ir.Module) -> Generator[None]:
        """A context for one run of the pass `name` over `module`."""
        before = str(module) if self._wanted.changed else ""
        with self._timed(name):
            yield
        after = name in self._wanted.after
        if not after and not self._wanted.changed:
            return
        text = str(module)
        if after or text != before:
            self._print(name, text)
        else:
            self._write(f"// ----- {name}: no change -----\n")

    @contextlib.contextmanager
    def watch_pipeline(self, name: str, module: ir.Module) -> Generator[None]:
        """Surrounds one run of a pipeline over `module`, whose passes tell what changed."""
        with self._timed(name):
            yield
        if name in self._wanted.after:
            self._print(name, str(module))

    @contextlib.contextmanager
    def _timed(self, name: str) -> Generator[None]:
        outermost = not self._stage
        if outermost:
            self._stage = name
        begin = time.perf_counter()
        row = self._stages.setdefault(self._stage, {}).setdefault(name, _Row())
        try:
            yield
        finally:
            row.seconds += time.perf_counter() - begin
            row.runs += 1
            if outermost:
                self._stage = ""

    def _print(self, name: str, text: str) -> None:
        self._write(f"// ----- after {name} -----\n{text.rstrip()}\n")

    def finish(self) -> None:
        """Names the passes that were asked for and did not run, and prints the table of times."""
        ran = {name for rows in self._stages.values() for name in rows}
        for name in self._wanted.after:
            if name not in ran:
                self._write(f"// ----- {name}: did not run for this program -----\n")
        if self._wanted.times:
            self._write(self._table())

    def _table(self) -> str:
        """Seconds of each stage, in order, and of everything else; below each stage those of its passes, slowest first.
        A pass of upstream is its pipeline's text."""
        total = time.perf_counter() - self._begin
        rest = total
        lines: list[str] = []
        for stage, rows in self._stages.items():
            rest -= rows[stage].seconds
            passes = sorted((name for name in rows if name != stage), key=lambda name: -rows[name].seconds)
            for name in (stage, *passes):
                row, indent = rows[name], "" if name == stage else "  "
                lines.append(f"{row.seconds:9.4f} s {row.seconds / total:6.1%} {row.runs:5}  {indent}{name}")
        lines.append(f"{rest:9.4f} s {rest / total:6.1%}        everything else: reading, code generation, writing")
        return "\n".join([f"{'time':>11} {'share':>6} {'runs':>5}  pass", *lines, f"{total:9.4f} s {'100.0%':>6}", ""])
