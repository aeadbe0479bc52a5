"""The output of `motet compile --print-after`, `--print-changed` and `--time-passes` while passes run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator

from motet.compiler.ir._mlir import ir
from motet.compiler.process.job import PassReports


class PassReporter:
    """An observer of passes (`running.py`) that passes text to `write`, a block or line at a time."""

    def __init__(self, wanted: PassReports, write: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._write = write
        self._seconds: dict[str, float] = {}
        self._runs: dict[str, int] = {}
        self._begin = time.perf_counter()

    @contextlib.contextmanager
    def watch(self, name: str, module: ir.Module) -> Generator[None]:
        """A context for one run of the pass `name` over `module`."""
        before = str(module) if self._wanted.changed else ""
        begin = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begin
        self._runs[name] = self._runs.get(name, 0) + 1
        after = name in self._wanted.after
        if not after and not self._wanted.changed:
            return
        text = str(module)
        if after or text != before:
            self._write(f"// ----- after {name} -----\n{text.rstrip()}\n")
        else:
            self._write(f"// ----- {name}: no change -----\n")

    def finish(self) -> None:
        """Reports requested passes that did not run, and prints the table of times."""
        for name in self._wanted.after:
            if name not in self._runs:
                self._write(f"// ----- {name}: did not run for this program -----\n")
        if self._wanted.times:
            self._write(self._table())

    def _table(self) -> str:
        """The table of seconds by pass, slowest first, and the remaining time; upstream's passes show their
        pipeline."""
        total = time.perf_counter() - self._begin
        rest = total - sum(self._seconds.values())
        rows = sorted(((seconds, self._runs[name], name) for name, seconds in self._seconds.items()), reverse=True)
        lines = [f"{seconds:9.4f} s {seconds / total:6.1%} {runs:5}  {name}" for seconds, runs, name in rows]
        lines.append(f"{rest:9.4f} s {rest / total:6.1%}        everything else: reading, code generation, writing")
        return "\n".join([f"{'time':>11} {'share':>6} {'runs':>5}  pass", *lines, f"{total:9.4f} s {'100.0%':>6}", ""])
