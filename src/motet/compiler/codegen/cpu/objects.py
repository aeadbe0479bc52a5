"""Compiles LLVM IR to relocatable objects, several units in worker processes.

LLVM aborts its process on IR that a target cannot select. Units are therefore compiled in other processes where
possible: a worker that dies becomes a `WorkerCrash`, which names the unit and keeps its IR. `python -m
motet.compiler.codegen.cpu.objects FILE.ll --target x86-64-v4` compiles such a file again in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO, cast

import llvmlite.binding as llvm

from motet.compiler.codegen.cpu.emit.extremes import with_extremes
from motet.compiler.codegen.cpu.emit.half_precision import CONVERSIONS, likely_conversions, with_conversions
from motet.compiler.codegen.cpu.imports import imported, is_source, is_spirv
from motet.compiler.codegen.llvm.opencl_c.program import opencl_c_program
from motet.compiler.codegen.llvm.spirv import spirv_ir, spirv_module
from motet.compiler.lifetime import die_with_parent, end_with
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.native import resolve_cpu_target
from motet.errors import CompileError, MotetError, WorkerCrash

_log = logging.getLogger("motet")


@dataclass(frozen=True)
class ObjectUnit:
    """LLVM IR to compile to one object. `llvm` has neither triple nor data layout.

    `optimise` requests LLVM's whole mid-level pipeline, which IR made from loops needs, with its vectorisers if
    `vectorise`. IR that is emitted with vectors goes directly to instruction selection; `parts` are such modules,
    linked to the optimised one. `entries` are the symbols of its phases with the numbers of their buffers and sizes,
    for OpenCL. Without them, a unit for SPIR-V is a program (see `programs.py`), of which `llvm` and `parts` are ready
    for LLVM's code generator.
    """

    name: str
    llvm: str
    optimise: bool
    parts: tuple[str, ...] = ()
    entries: tuple[tuple[str, int, int], ...] = ()
    vectorise: bool = True


def compile_units(units: Sequence[ObjectUnit], target: CpuTarget, jobs: int) -> list[bytes]:
    """One relocatable object per unit, in order; equal units give equal bytes. For SPIR-V and OpenCL C, the parts of a
    program, which `programs.py` joins.

    Up to `jobs` worker processes share the work; with one job or one unit, the caller's process compiles, unless LLVM's
    vectorisers run, which abort on some loops ("VPlan cost model and legacy cost model disagreed"): such a unit is then
    compiled without them, and a warning says so. Raises `CompileError` for IR that LLVM rejects and `WorkerCrash` if
    LLVM aborts.
    """
    at_risk = _forks() and any(unit.optimise for unit in units)
    if (jobs <= 1 or len(units) <= 1) and not at_risk:
        return [_emit_object(unit, target) for unit in units]
    while True:
        try:
            return _Workers(units, target, max(1, min(jobs, len(units)))).run()
        except UnitDied as died:
            if not died.unit.optimise or not died.unit.vectorise:
                raise worker_crash(died.unit, target, died.how) from died
            _log.warning("kernel %s: LLVM died while it vectorised its loops for %s; they are left as they are, and "
                         "slower (%s)", died.unit.name, target.name, died.how.partition(":")[0])  # fmt: skip
            units = [replace(unit, vectorise=unit.vectorise and unit != died.unit) for unit in units]


def compile_apart(unit: ObjectUnit, target: CpuTarget) -> bytes:
    """The object of a unit, made by a process that makes no other. Raises UnitDied if LLVM aborts, CompileError."""
    return _Workers([unit], target, 1).run()[0]


class UnitDied(Exception):
    """A worker process that died on `unit`; `how` is its signal or status and what it printed first."""

    def __init__(self, unit: ObjectUnit, how: str) -> None:
        self.unit = unit
        self.how = how


def assembly(unit: ObjectUnit, target: CpuTarget) -> str:
    """The assembly text of the object that `compile_units` makes from `unit`; of one program in a process, for
    SPIR-V."""
    if is_source(target):
        return opencl_c_program(unit.llvm, unit.entries, unit.parts, target.widest)
    if is_spirv(target):
        machine, module = spirv_module([unit.llvm, *unit.parts])
    else:
        machine, module = _prepare(unit, target, likely_conversions(_whole(unit), target))
    return machine.emit_assembly(module)


# -- one unit ------------------------------------------------------------------------------------------


def _emit_object(unit: ObjectUnit, target: CpuTarget) -> bytes:
    if is_source(target):
        return opencl_c_program(unit.llvm, unit.entries, unit.parts, target.widest).encode()
    if is_spirv(target):
        if unit.entries:
            return _spirv_ir(unit).encode()
        machine, module = spirv_module([unit.llvm, *unit.parts])
        return machine.emit_object(module)
    conversions = likely_conversions(_whole(unit), target)
    while True:
        machine, module = _prepare(unit, target, conversions)
        code = machine.emit_object(module)
        missing = CONVERSIONS.keys() & imported(code, unit.name)
        if missing <= conversions:
            return code
        conversions |= missing  # passes introduced them, or the definition of another conversion calls them


def _prepare(unit: ObjectUnit, target: CpuTarget, conversions: Collection[str]) -> tuple[Any, Any]:
    """A target machine for `target`, and the module of `unit` with definitions of `conversions`, after the mid-level
    passes."""
    machine = target_machine(target)
    module, *parts = (
        _parsed(unit, text, target, machine) for text in (with_conversions(unit.llvm, conversions), *unit.parts)
    )
    if unit.optimise:
        _run_passes(module, machine, unit.vectorise)
    for part in parts:
        module.link_in(part)
    return machine, module


def _parsed(unit: ObjectUnit, text: str, target: CpuTarget, machine: Any) -> Any:
    try:
        module = llvm.parse_assembly(with_extremes(text, target))
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise _invalid(unit, error) from error
    return module


def _spirv_ir(unit: ObjectUnit) -> str:
    try:
        return spirv_ir(unit.llvm, unit.parts, unit.entries)
    except RuntimeError as error:
        raise _invalid(unit, error) from error


def _invalid(unit: ObjectUnit, error: RuntimeError) -> CompileError:
    detail = " ".join(str(error).split())
    return CompileError(f"kernel {unit.name}: the generated LLVM IR is not valid: {detail}; this is a defect of motet")


def _whole(unit: ObjectUnit) -> str:
    return "\n".join((unit.llvm, *unit.parts))


def target_machine(target: CpuTarget) -> Any:
    """LLVM's target machine for position-independent code of `target`, optimised at instruction level."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # of microkernels, which may be assembly
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small", abiname=target.abi
    )


def _run_passes(module: Any, machine: Any, vectorise: bool) -> None:
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = vectorise
    tuning.slp_vectorization = vectorise
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)


# -- worker processes ----------------------------------------------------------------------------------

IDLE = -1


@dataclass
class _ObjectWorker:
    """A process that answers each `(unit, target)` with an object or the text of an error."""

    connection: Connection
    log: BinaryIO  # what the process writes to stderr, including LLVM's error message
    pid: int
    child: subprocess.Popen[bytes] | None = None  # None if the worker was forked
    unit: int = IDLE  # the unit that it compiles

    def reap(self) -> int:
        """Wait for the process to end; its exit status, negative for a signal."""
        self.connection.close()
        if self.child is not None:
            return self.child.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass
class _Workers:
    """Assigns units to workers as they become free, longest first."""

    units: Sequence[ObjectUnit]
    target: CpuTarget
    count: int
    workers: list[_ObjectWorker] = field(default_factory=list[_ObjectWorker])

    def run(self) -> list[bytes]:
        todo = sorted(range(len(self.units)), key=lambda index: len(_whole(self.units[index])))
        objects: dict[int, bytes] = {}
        try:
            for _ in range(self.count):
                self.workers.append(_start())
            for worker in self.workers:
                self._give(worker, todo)
            while len(objects) < len(self.units):
                busy = {worker.connection: worker for worker in self.workers if worker.unit != IDLE}
                for connection in wait(list(busy)):
                    worker = busy[connection]  # type: ignore[index]
                    objects[worker.unit] = self._take(worker, self.units[worker.unit])
                    self._give(worker, todo)
        finally:
            self._stop()
        return [objects[index] for index in range(len(self.units))]

    def _give(self, worker: _ObjectWorker, todo: list[int]) -> None:
        worker.unit = todo.pop() if todo else IDLE
        if worker.unit == IDLE:
            return
        try:
            worker.connection.send((self.units[worker.unit], self.target))
        except OSError as error:
            raise self._died(worker, self.units[worker.unit]) from error

    def _take(self, worker: _ObjectWorker, unit: ObjectUnit) -> bytes:
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died(worker, unit) from error
        if isinstance(answer, str):
            raise CompileError(answer)
        return answer

    def _died(self, worker: _ObjectWorker, unit: ObjectUnit) -> UnitDied:
        self.workers.remove(worker)
        status = worker.reap()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        with worker.log as log:
            log.seek(0)
            words = log.read().decode(errors="replace").strip().splitlines()[:1]
        return UnitDied(unit, ": ".join([how, *words]))

    def _stop(self) -> None:
        for worker in self.workers:
            if worker.unit == IDLE:
                with contextlib.suppress(OSError):
                    worker.connection.send(None)
            else:
                os.kill(worker.pid, signal.SIGKILL)
        for worker in self.workers:
            worker.reap()
            worker.log.close()


def worker_crash(unit: ObjectUnit, target: CpuTarget, how: str) -> WorkerCrash:
    """The error for a worker that died on `unit`; the IR is kept in a new temporary folder to reproduce it."""
    file = Path(tempfile.mkdtemp(prefix="motet-crash-")) / "unit.ll"
    file.write_text(unit.llvm)
    command = [Path(sys.executable).name, "-m", __spec__.name, str(file), "--target", target.name]
    if unit.optimise:
        command.append("--optimise")
    return WorkerCrash(
        f"kernel {unit.name}: the compiler process for {target.name} died ({how})", shlex.join(command)
    )


def _start() -> _ObjectWorker:
    """Start a worker: by fork, which takes milliseconds, if no other thread runs; else a new interpreter."""
    ours, theirs = _duplex()
    log = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - without a name: nothing stays if this dies
    with theirs:
        if _forks():
            llvm.initialize_all_targets()  # once, instead of in every worker
            llvm.initialize_all_asmprinters()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                os.dup2(log.fileno(), 2)
                end_with(lambda: _serve_forked(theirs, parent))
            return _ObjectWorker(ours, log, pid)
        child = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--serve", str(theirs.fileno()), "--parent", str(os.getpid())],
            stderr=log, pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return _ObjectWorker(ours, log, child.pid, child)


def _forks() -> bool:
    return sys.platform == "linux" and threading.active_count() == 1


def _duplex() -> tuple[Connection, Connection]:
    left, right = socket.socketpair()
    return Connection(left.detach()), Connection(right.detach())


def _serve_forked(connection: Connection, parent: int) -> None:
    die_with_parent(parent)
    _serve(connection)


def _serve(connection: Connection) -> None:
    while (task := connection.recv()) is not None:
        unit, target = task
        try:
            answer: bytes | str = _emit_object(unit, target)
        except CompileError as error:
            answer = error.message
        connection.send(answer)


# -- the command ---------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile one file of LLVM IR in this process, to reproduce a `WorkerCrash`."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=main.__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="LLVM IR without triple and data layout")
    parser.add_argument("--target", default="native", help="a CPU level (default: native)")
    parser.add_argument("--optimise", action="store_true", help="run LLVM's whole mid-level pipeline")
    parser.add_argument("--assembly", action="store_true", help="write assembly to stdout instead of an object")
    parser.add_argument("--output", type=Path, help="the object's file (default: next to the input)")
    parser.add_argument("--serve", type=int, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve is not None:
        die_with_parent(options.parent)
        _serve(Connection(options.serve))
        return 0
    if options.file is None:
        parser.error("which file?")
    try:
        target = resolve_cpu_target(options.target)
        unit = ObjectUnit(options.file.stem, options.file.read_text(), options.optimise)
        if options.assembly:
            sys.stdout.write(assembly(unit, target))
        else:
            (options.output or options.file.with_suffix(".o")).write_bytes(_emit_object(unit, target))
    except (MotetError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
