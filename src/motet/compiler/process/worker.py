"""A compiler worker: `python -m motet.compiler.process.worker FOLDER` runs the job that the folder describes.

MLIR and LLVM may crash on unexpected input; such a crash ends this process only. The folder also serves as a
reproducer: the same command runs the same job again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import mmap
import os
import pickle
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from motet.compiler.job import ARRAYS, REQUEST, RESULT, Job, ListedWait, Message
from motet.compiler.lifetime import die_with_parent
from motet.decoding import decode_msgpack
from motet.errors import CompileError, Location, MotetError, WorkerCrash

if TYPE_CHECKING:
    from motet.compiler.ir.program import Program
    from motet.compiler.pipeline import Built
    from motet.compiler.placement.place import Place
    from motet.compiler.sharding.shard import Shard
    from motet.compiler.targets.family import Target
    from motet.compiler.targets.rates import RateTable
    from motet.compiler.tuning.kernels import Choice

_log = logging.getLogger("motet")


class _WarningSender(logging.Handler):
    """Sends the compiler's warnings to the requesting process, each once, for how many targets it may be."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sent: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()) not in self.sent:
            self.sent.add(text)
            _say(Message(warning=text))


def main() -> int:
    if len(sys.argv) > 2:  # the requesting process; absent when a job is reproduced
        die_with_parent(int(sys.argv[2]))
    return work(Path(sys.argv[1]))


def work(folder: Path) -> int:
    """Run the job of a folder, with progress on standard output; returns the exit status."""
    gc.set_threshold(100_000, 50, 50)  # little garbage comes up, and is collected between jobs
    _log.handlers = [_WarningSender()]
    _log.propagate = False
    job = decode_msgpack((folder / REQUEST).read_bytes(), Job)
    try:
        if job.kind == "compile":
            expect(job.targets)
        perform(job, folder)
    except MotetError as error:
        _say(_message(error))
        return 1
    return 0


def expect(targets: Sequence[str]) -> None:
    """Start to load the tools for these targets in the background."""
    from motet.compiler.targets.families import HOST, resolve_target

    found = [target for target in map(resolve_target, targets) if target.family != HOST]
    if found:
        from motet.compiler.codegen.backends import prepare

        prepare(found)


def perform(job: Job, folder: Path, left: frozenset[str] = frozenset()) -> None:
    """Run `job` in this process; the result is written where the job says, or to the folder. `left` are locations of
    operations that are left to their device's fallback, because code generation found no code for them, which placement
    could not know (see `compiler/obstacles.py`). Such a job is run again, once. Raises MotetError."""
    from motet.compiler.codegen.backend import NoCode
    from motet.compiler.ir._mlir import ir

    try:
        with _reported(job):
            _do(job, folder, left)
    except NoCode as refusal:
        alternatives = [one for flag in job.devices for one in flag.alternatives]
        if left or not refusal.places or not any(one.fallback for one in alternatives):
            raise CompileError(refusal.message, refusal.location) from None
        _log.info("once more, without the operations that have no code: %s", refusal.reason or refusal.message)
        perform(job, folder, refusal.places)
    except ir.MLIRError as error:
        raise CompileError(f"{job.path}: {_one_line(str(error))}") from error


def _do(job: Job, folder: Path, left: frozenset[str]) -> None:
    if job.kind == "compile":
        _compile(job, folder, left)
    elif job.kind == "emit":
        _emit(job, folder, left)
    elif job.kind == "optimise":
        _optimise(job, folder)
    elif job.kind == "list":
        _list(job, folder)
    elif job.kind == "waits":
        _list_waits(job, folder)
    else:
        _verify(job, folder)


@contextlib.contextmanager
def _reported(job: Job) -> Generator[None]:
    """Send the reports of passes that the job requests, also if it fails."""
    if not job.reports:
        yield
        return
    from motet.compiler.passes.report import PassReporter
    from motet.compiler.passes.running import observed

    reporter = PassReporter(job.reports, lambda text: _say(Message(report=text)))
    with observed(reporter):
        try:
            yield
        finally:
            reporter.finish()


@contextlib.contextmanager
def _loaded(job: Job) -> Generator[Program]:
    """The job's program as its front end builds it, in whose context all further work is done."""
    from motet.compiler.frontends import load_source
    from motet.compiler.ir._mlir import ir
    from motet.compiler.ir.program import STRICT_TOKENS, UNCHECKED
    from motet.compiler.kernels.roles import structures_kept
    from motet.compiler.passes.fuse.marks import SEPARATE_SIBLINGS
    from motet.compiler.passes.fuse.narrow_products import PRECISION

    data = _source(job)
    source = data[:].decode() if job.text else data
    program = load_source(source, job.path, job.format, job.model, job.data_files, job.sequences)
    context = program.module.context
    context.allow_unregistered_dialects = True  # for the attributes named motet.…
    with context, ir.Location.unknown(), structures_kept():
        if job.separate_siblings:
            program.module.operation.attributes[SEPARATE_SIBLINGS] = ir.UnitAttr.get()
        if job.strict_tokens:
            program.module.operation.attributes[STRICT_TOKENS] = ir.UnitAttr.get()
        if job.unchecked_indices:
            program.module.operation.attributes[UNCHECKED] = ir.UnitAttr.get()
        if job.precision != "f32":
            program.module.operation.attributes[PRECISION] = ir.StringAttr.get(job.precision)
        yield program


def _place(job: Job, left: frozenset[str]) -> Place:
    """The stage that splits the job's program by device."""
    from motet.compiler.obstacles import Obstacles
    from motet.compiler.placement.place import Place

    obstacles = Obstacles(job.targets).find
    return Place(job.devices, job.placement == "auto", job.places, _rate_table(job), left, obstacles)


def _shard(job: Job) -> Shard:
    """The stage that divides the job's program over a mesh, whose devices are of the families that flags without a name
    list."""
    from motet.compiler.ir.shardings import parse_mesh
    from motet.compiler.placement.assign_devices import alternatives
    from motet.compiler.sharding.requests import parse_request
    from motet.compiler.sharding.shard import Shard

    mesh = parse_mesh(job.mesh) if job.mesh else None
    requests = tuple(parse_request(text) for text in job.shards)
    given = [one for flag in job.devices if not flag.name for one in alternatives(flag)]
    return Shard(mesh, requests, tuple(given)) if given else Shard(mesh, requests)


def _rate_table(job: Job) -> RateTable:
    """The rates of devices: those of families, overridden by the request's."""
    from motet.compiler.placement.machine import rates_of_families
    from motet.compiler.targets.rates import read_rates

    return rates_of_families(read_rates(job.rates, "rates") if job.rates else None, job.targets)


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "error:" in line), lines[-1] if lines else "unknown error")
    return found.removeprefix("error:").strip()


def _source(job: Job) -> bytes | mmap.mmap:
    if job.source is not None:
        return job.source
    try:
        with Path(job.file or job.path).open("rb") as file:
            status = os.fstat(file.fileno())
            if job.file and (status.st_size, status.st_mtime_ns) != job.state:
                raise CompileError("it was changed while it was compiled; compile it again", Location(job.path))
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if job.file else file.read()
    except OSError as error:
        raise CompileError(f"{job.path}: {(error.strerror or str(error)).lower()}") from None


def _targets(job: Job, program: Program) -> list[Target]:
    """The targets: those requested, and the defaults of families that only the program names."""
    from motet.compiler.placement.families import program_families
    from motet.compiler.targets.families import resolve_target, target_names

    targets = [resolve_target(name) for name in job.targets]
    if program.placement is None:
        return targets
    families = program_families(program.placement.devices)
    for family in families:
        if all(target.family != family for target in targets):
            targets += [resolve_target(name) for name in target_names(family, {}, family)]
    without = [family for family in families if all(target.family != family for target in targets)]
    if without:
        listing = ", ".join(without)
        _log.warning("no code is made for devices of %s: the program runs on its other alternatives", listing)
    return [target for target in targets if target.family in families]


def _host_targets(job: Job) -> list[Target]:
    """The targets of the host, on which kernels can be compared with the oracle."""
    from motet.compiler.targets.families import HOST, default_levels, resolve_target

    targets = [resolve_target(name) for name in job.targets]
    own = [target for target in targets if target.family == HOST]
    return own or [resolve_target(name) for name in default_levels()]


def _compile(job: Job, folder: Path, left: frozenset[str]) -> None:
    from motet.artifact.kernel_schedules import SCHEDULES
    from motet.artifact.writer import EarlyParameters, store_artifact
    from motet.compiler import pipeline
    from motet.compiler.build.variant import VariantOptions
    from motet.compiler.tuning.given import warn_of_unknown

    _progress("read", 0.0)
    result = Path(job.result) if job.result else folder / RESULT
    with EarlyParameters(result.with_name(f"{result.name}.early")) as early:
        with _loaded(job) as program:
            pipeline.prepare(program, _place(job, left), _shard(job))
            options = VariantOptions(job.memory_limit, job.tune_schedule, _choice(job))
            built = pipeline.build(program, _targets(job, program), job.jobs, _progress, options, early.begin)
        if job.schedules:
            warn_of_unknown(_choice(job).schedules, built.members[SCHEDULES])
        built = _tuned(job, built, folder)
        _progress("write", 0.95)
        early.begin(built.parameters)  # if they were not known before: writing hashes them as they are packed, once
        members = {**built.members, **_kept_source(job, built)}
        store_artifact(built.manifest, members, built.parameters, result, durable=False, early=early)


def _tuned(job: Job, built: Built, folder: Path) -> Built:
    """`built` with the fastest choices on this machine, if requested."""
    if job.tune == "measure":
        from motet.compiler.tuning.measuring import tune_kernels_here

        built = tune_kernels_here(built, job.tunings, job.tune_inputs, folder, _progress)
    if job.tune_schedule:
        from motet.compiler.tuning.inputs import parse_inputs
        from motet.compiler.tuning.schedule import tune_schedules

        built = tune_schedules(built, parse_inputs(job.tune_inputs) if job.tune_inputs else {}, folder, _progress)
    return built


def _kept_source(job: Job, built: Built) -> dict[str, bytes]:
    """The members that keep the source, if requested."""
    from motet.compiler.verify.kept_source import source_members

    if not job.keep_source:
        return {}
    return source_members(job, _source(job), [built.parameters[each.key] for each in built.manifest.parameters])


def _choice(job: Job) -> Choice:
    """The choice of forms and schedules."""
    from motet.artifact.kernel_schedules import NO_SCHEDULES, given_schedules
    from motet.artifact.tunings import parse_tunings
    from motet.compiler.tuning.kernels import CANDIDATES, Choice

    given = given_schedules(job.schedules, "option schedules") if job.schedules else NO_SCHEDULES
    if not job.tunings:
        return Choice(keeps=job.keeps, schedules=given)
    tunings = parse_tunings(job.tunings, "option tuning")
    return Choice(CANDIDATES if job.tune else 1, tunings, job.library, job.keeps, given)


def _emit(job: Job, folder: Path, left: frozenset[str]) -> None:
    from motet.compiler import pipeline, stages

    with _loaded(job) as program:
        if job.stage == "affinities":
            text = pipeline.annotate_devices(program, _place(job, left))
        else:
            pipeline.prepare(program, _place(job, left), _shard(job))
            text = stages.emit(program, job.stage, _targets(job, program), job.jobs, _choice(job))
    (folder / RESULT).write_text(text)


def _optimise(job: Job, folder: Path) -> None:
    from motet.compiler import stages

    data = _source(job)
    (folder / RESULT).write_text(stages.optimise(data[:].decode(), job.path, job.pipeline, job.devices))


def _list(job: Job, folder: Path) -> None:
    from motet.compiler import pipeline
    from motet.compiler.build.listing import list_kernels

    with _loaded(job) as program:
        pipeline.prepare(program)
        kernels = list_kernels(program, _targets(job, program)[0])
    (folder / RESULT).write_bytes(pickle.dumps(kernels))


def _list_waits(job: Job, folder: Path) -> None:
    """The waits of a program in MLIR; no other front end writes operations of `gpu`."""
    from motet.compiler.frontends.gpu.listed_waits import list_waits
    from motet.compiler.frontends.kinds import kind_of

    data = _source(job)
    waits: list[ListedWait] = []
    if kind_of(data[:].decode() if job.text else data, job.path, job.format) == "mlir":
        with _loaded(job) as program:
            waits = list_waits(program.module)
    (folder / RESULT).write_bytes(msgspec.json.encode(waits))


def _verify(job: Job, folder: Path) -> None:
    from motet.compiler import pipeline
    from motet.compiler.verify import verification

    oracle = None
    if job.oracle != "upstream":
        from motet.compiler.verify.model_oracles import model_oracle

        oracle = model_oracle(job.oracle, job.path, _source(job), job.format, job.model)
    with _loaded(job) as program, np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        pipeline.prepare(program)
        report = verification.verify(program, job.function, arrays, _host_targets(job), job.jobs, oracle)
    (folder / RESULT).write_bytes(msgspec.json.encode(report))


def _progress(what: str, fraction: float) -> None:
    _say(Message(progress=what, fraction=fraction))


def _say(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def _message(error: MotetError) -> Message:
    if isinstance(error, CompileError):
        place = error.location
        if place is None:
            return Message(error="CompileError", text=error.message)
        return Message(error="CompileError", text=error.message, file=place.file, line=place.line, column=place.column)
    reproducer = error.reproducer if isinstance(error, WorkerCrash) else ""
    text = str(error).removesuffix(f"; reproduce with: {reproducer}") if reproducer else str(error)
    return Message(error=type(error).__name__, text=text, reproducer=reproducer)


if __name__ == "__main__":
    _status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # An orderly exit would spend tens of milliseconds on destroying MLIR's and LLVM's objects.
    os._exit(_status)
