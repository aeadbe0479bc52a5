"""Runs passes, and notifies an observer: `motet compile --print-after`, `--print-changed` and `--time-passes`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from motet.compiler.ir import _mlir
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program
from motet.compiler.passes import registry
from motet.compiler.passes.base import AnyPass, ModulePass
from motet.compiler.passes.pipelines import CLEAN, PIPELINES, Cleaned, Step, Upstream


class Observer(Protocol):
    """Is notified of every pass. Its context encloses the run of the pass."""

    def watch(self, name: str, module: ir.Module) -> contextlib.AbstractContextManager[None]: ...

    def watch_pipeline(self, name: str, module: ir.Module) -> contextlib.AbstractContextManager[None]: ...


_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observed(observer: Observer | None) -> Generator[None]:
    """Notifies `observer` of the passes that run in this context."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def run_named(name: str, program: Program, options: Mapping[str, Mapping[str, Any]] | None = None) -> bool:
    """`run_steps` of the pipeline `name`, of which the observer is told too."""
    observer = _observer.get()
    with contextlib.nullcontext() if observer is None else observer.watch_pipeline(name, program.module):
        return run_steps(PIPELINES[name], program, options)


def run_steps(
    steps: Sequence[Step], program: Program, options: Mapping[str, Mapping[str, Any]] | None = None
) -> bool:
    """Runs the steps of a pipeline over `program`, in order; returns whether a pass of Motet changed anything.
    `options` sets fields that cannot be given as text, by the pass's name."""
    changed = [_run_step(step, program, options or {}) for step in steps]
    return any(changed)


def _run_step(step: Step, program: Program, options: Mapping[str, Mapping[str, Any]]) -> bool:
    if isinstance(step, Upstream):
        run_upstream(step.pipeline, program.module)
        return False
    if isinstance(step, Cleaned):
        changed = run_steps(step.passes, program, options)
        if changed:
            run_upstream(CLEAN, program.module, verify_each=False)
        return changed
    return run_pass(registry.make(step, options.get(registry.name_of(step))), program)


def run_pass(each: AnyPass, program: Program) -> bool:
    """Runs one pass; returns whether it reports a change. A pass over a module does not report changes."""
    if isinstance(each, ModulePass):
        run_on_module(each, program.module)
        return False
    with _watched(each.name, program.module):
        return each.run(program)


def run_on_module(each: ModulePass, module: ir.Module) -> None:
    """Runs a pass over a module."""
    with _watched(each.name, module):
        each.run(module)


def run_upstream(pipeline: str, module: ir.Module, verify_each: bool = True) -> None:
    """Runs passes of upstream MLIR. Raises `ir.MLIRError` with the diagnostics if one fails."""
    with _watched(pipeline, module):
        _mlir.run_pipeline(module, pipeline, verify_each)


def _watched(name: str, module: ir.Module) -> contextlib.AbstractContextManager[None]:
    observer = _observer.get()
    return contextlib.nullcontext() if observer is None else observer.watch(name, module)
