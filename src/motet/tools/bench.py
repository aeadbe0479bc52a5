"""motet bench: measures the duration of a call, and how it is spent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.errors import OptionError
from motet.tools import arguments
from motet.tools.profile import KernelTime, profile_kernels, profile_lines

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.measuring.latency import Latency
    from motet.runtime.session import Session
    from motet.specs import Array
    from motet.tools.benching.roof import Roof
    from motet.tools.benching.throughput import Throughput
    from motet.tools.opening import Opened, OpenOptions
    from motet.tools.placements import Repetition

HELP = """Measure how long a call takes.

Inputs are random by default. Calls are timed one by one, and their percentiles are shown; with a second FILE, both
programs are measured alternately and compared. A sample is N calls (--number), by default as many as fill its share
of --min-time. Times outside kernels are measured in the same calls as the kernels. Figures are compared with what this
machine can do, which is measured once. A warning says if other work disturbed the machine.

\b
Examples:
  motet bench model.motet
  motet bench model.mlir --input 64x128xf32=random:1 --repeat 20 --threads 1
  motet bench model.motet --profile
  motet bench before.motet after.motet             which one is faster, and by how much
  motet bench model.motet --in-flight 4            throughput: up to four calls at the same time
  motet bench model.motet --batch 8 --in-flight 2  with eight rows where the first extent is dynamic
  motet bench model.motet --json
  motet bench model.onnx --verify                  compares one call with the oracle first
  motet bench model.motet --compare-placements     over its devices as placed, and on each of them alone
"""


@dataclass(frozen=True)
class Measurement:
    """The measurement of a function: the times of calls in seconds, and the work of one (0 if unknown). `samples` are
    the means of the samples. `overhead` is the time of a call outside kernels, the median of `traced` calls whose
    kernels were timed as well; None if the devices do not tell."""

    file: str
    function: str
    target: str
    threads: int
    number: int
    latency: Latency
    samples: list[float]
    flops: int
    bytes: int
    overhead: float | None
    traced: int
    roof: Roof | None
    kernels: list[KernelTime]


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds}: expected a number of seconds")
    return seconds


# The parameters of this function are the options of `motet bench`, read by typer.
def bench_function(
    file: arguments.Runnable,
    other: Annotated[str | None, typer.Argument(
        metavar="[FILE]", show_default=False, help="A second artifact or program, to compare with the first.",
    )] = None,
    function: arguments.Function = None,
    input: arguments.Inputs = None,
    device: arguments.Bindings = None,
    format: arguments.Format = "auto",
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Samples to take.")] = 10,
    number: Annotated[int | None, typer.Option(
        metavar="N", min=1, show_default=False,
        help="Calls in a sample; by default chosen by --min-time.",
    )] = None,
    min_time: Annotated[
        float, typer.Option(metavar="S", min=0.0, callback=_finite, help="Seconds for all samples.")
    ] = 1.0,
    in_flight: Annotated[int | None, typer.Option(
        "--in-flight", metavar="N", min=1, max=1024, show_default=False,
        help="Measure throughput for --min-time, with up to N calls at the same time.",
    )] = None,
    batch: Annotated[int | None, typer.Option(
        metavar="N", min=1, show_default=False,
        help="The first extent of random inputs, where it is dynamic; throughput is then also shown by rows.",
    )] = None,
    threads: arguments.Threads = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show the time of each kernel too.")] = False,
    placement: arguments.Placement = "default",
    place: arguments.Places = None,
    compare_placements: Annotated[bool, typer.Option(
        "--compare-placements",
        help="Compare the program over its devices with the program on each of them alone, alternating calls.",
    )] = False,
    trace: Annotated[str | None, typer.Option(
        metavar="FILE.json", show_default=False,
        help="Write a trace of one more call after the measurement, for Perfetto (ui.perfetto.dev) or motet inspect "
        "--html.",
    )] = None,
    verify: arguments.Verify = False,
    oracle: arguments.Oracle = "upstream",
    json: arguments.Json = False,
) -> None:
    from motet.specs import parse_spec
    from motet.tools import verifying
    from motet.tools.opening import OpenOptions
    from motet.tools.placements import Repetition

    verifying.check_options(verify, oracle)
    _check_modes(other, in_flight, compare_placements, profile, number, trace, verify)
    opening = OpenOptions(format, tuple(device or ()), placement, tuple(place or ()))
    wishes = _BenchWishes(function, [parse_spec(text) for text in input or []], batch, threads,
                     Repetition(repeat, number, min_time), profile, trace, oracle if verify else "", json)
    if compare_placements:
        _bench_placements(file, opening, wishes)
    elif other is not None:
        _bench_two((file, other), opening, wishes)
    elif in_flight is not None:
        _bench_throughput(file, opening, wishes, in_flight)
    else:
        _bench_calls(file, opening, wishes)


@dataclass(frozen=True)
class _BenchWishes:
    """What is to be called and measured, and how it is to be shown."""

    function: str | None
    given: list[Array]
    batch: int | None
    threads: int | None
    repetition: Repetition
    profile: bool
    trace: str | None
    oracle: str
    json: bool


def _check_modes(
    other: str | None, in_flight: int | None, compare_placements: bool, profile: bool, number: int | None,
    trace: str | None, verify: bool,
) -> None:
    """Raises OptionError for options that exclude each other."""
    options = {"--trace": trace is not None, "--verify": verify, "--in-flight": in_flight is not None,
               "--profile": profile, "--number": number is not None}
    if compare_placements and other is not None:
        raise OptionError(f"--compare-placements: not with a second program ({other}); compare one at a time")
    for mode, on, others, why in (
        ("--compare-placements", compare_placements, ("--trace", "--verify", "--in-flight"),
         "which calls the program in several ways"),
        (f"a second program ({other})", other is not None, ("--trace", "--verify", "--in-flight"),
         "whose calls alternate with those of the first"),
        ("--in-flight", in_flight is not None, ("--trace", "--profile", "--number"),
         "whose calls overlap"),
    ):
        for option in others if on else ():
            if options[option]:
                raise OptionError(f"{option}: not with {mode}, {why}; measure without it")


def _bench_calls(file: str, opening: OpenOptions, wishes: _BenchWishes) -> None:
    from motet.measuring.disturbance import Watch
    from motet.tools import verifying
    from motet.tools.opening import start_session
    from motet.tools.progress import Progress
    from motet.tools.run import choose_function, write_trace

    session, opened = start_session(file, opening, wishes.threads)
    with session:
        signature = choose_function(opened.artifact.callable_functions, wishes.function, file)
        arrays = _arrays(wishes, opened, file)
        if wishes.oracle:
            verifying.check_verifiable(opened, file)
            _verify(session, opened, signature.name, arrays, wishes.oracle, wishes.json)
        watch = Watch()
        with Progress(f"measuring {signature.name}") as progress:
            found, medians = measure(session, signature.name, file, arrays, wishes.repetition, progress.update)
        disturbances = watch.reasons(found.latency, medians)
        if wishes.trace is not None:
            write_trace(session, session[signature.name], arrays, wishes.trace)
    _print("calls", found, _lines(found, wishes.profile), disturbances, wishes.json)


def _bench_two(files: tuple[str, str], opening: OpenOptions, wishes: _BenchWishes) -> None:
    from motet.measuring.disturbance import Watch
    from motet.tools.benching.versus import check_same_inputs, measure_versus, versus_lines
    from motet.tools.opening import start_session
    from motet.tools.progress import Progress
    from motet.tools.run import check_inputs, choose_function

    first, opened = start_session(files[0], opening, wishes.threads)
    with first:
        second, other = start_session(files[1], opening, wishes.threads)
        with second:
            signature = choose_function(opened.artifact.callable_functions, wishes.function, files[0])
            functions = other.artifact.callable_functions
            name = wishes.function or (signature.name if len(functions) > 1 else None)
            chosen = choose_function(functions, name, files[1])
            check_same_inputs((signature, chosen), files)
            arrays = _arrays(wishes, opened, files[0])
            check_inputs(chosen, arrays, files[1])
            watch = Watch()
            programs = [(files[0], first, signature.name), (files[1], second, chosen.name)]
            with Progress(f"measuring {signature.name}") as progress:
                found = measure_versus(programs, arrays, wishes.repetition, wishes.profile, progress.update)
            disturbances = watch.reasons()
    _print("versus", found, versus_lines(found, wishes.profile), disturbances, wishes.json)


def _bench_throughput(file: str, opening: OpenOptions, wishes: _BenchWishes, in_flight: int) -> None:
    from motet.measuring.disturbance import Watch
    from motet.tools.benching.throughput import measure_throughput
    from motet.tools.opening import start_session
    from motet.tools.progress import Progress
    from motet.tools.run import choose_function

    session, opened = start_session(file, opening, wishes.threads, in_flight)
    with session:
        signature = choose_function(opened.artifact.callable_functions, wishes.function, file)
        arrays = _arrays(wishes, opened, file)
        if wishes.oracle:
            _verify(session, opened, signature.name, arrays, wishes.oracle, wishes.json)
        watch = Watch()
        with Progress(f"measuring {signature.name}") as progress:
            found = measure_throughput(session, signature.name, arrays, in_flight, wishes.repetition.min_time,
                                       wishes.batch, progress.update)
        target = ", ".join(variant.target for variant in session.variants)
        lines = _throughput_lines(found, signature.name, target, session.threads)
    _print("throughput", found, lines, watch.reasons(), wishes.json)


def _bench_placements(file: str, opening: OpenOptions, wishes: _BenchWishes) -> None:
    from motet.measuring.disturbance import Watch
    from motet.tools.run import choose_function

    opened, bindings = opening.open(file)
    signature = choose_function(opened.artifact.callable_functions, wishes.function, file)
    watch = Watch()
    arrays = _arrays(wishes, opened, file)
    _compare(opened.artifact, bindings, signature.name, arrays, wishes, watch.reasons)


def _arrays(wishes: _BenchWishes, opened: Opened, file: str) -> list[Array]:
    from motet.tools.benching.inputs import inputs_of
    from motet.tools.run import choose_function

    signature = choose_function(opened.artifact.callable_functions, wishes.function, file)
    return inputs_of(wishes.given, signature, file, wishes.batch)


def _verify(
    session: Session, opened: Opened, name: str, arrays: Sequence[Array], oracle: str, json: bool
) -> None:
    """Verifies one call before the measurement: the time of a wrong result is irrelevant."""
    from motet.tools.run import call
    from motet.tools.verifying import verify

    before = [array.copy() for array in arrays]  # a destination is overwritten by the call
    verify(opened, name, before, call(session[name], [array.copy() for array in arrays]), oracle, err=json)


def _compare(
    artifact: Artifact, bindings: Mapping[str, str], name: str, arrays: Sequence[Array], wishes: _BenchWishes,
    disturbances: Callable[[], list[str]],
) -> None:
    from motet.tools.placements import compare_placements, comparison_lines
    from motet.tools.progress import Progress

    if not artifact.manifest.plans:
        raise OptionError(f"--compare-placements: {artifact.name} has no devices to place it on; expected a program "
                          "compiled with several, such as --device a=host --device b=null --placement auto")
    with Progress(f"measuring {name}") as progress:
        result = compare_placements(artifact, bindings, name, arrays, wishes.threads, wishes.repetition,
                                    progress.update)
    _print("placements", result, comparison_lines(result), disturbances(), wishes.json)


def _print(kind: str, found: Any, lines: Sequence[str], disturbances: list[str], json: bool) -> None:
    """Prints a result; a disturbed machine is a warning on standard error, and a field of the JSON."""
    from motet.measuring.disturbance import warning_of
    from motet.tools.benching.writing import bench_json

    typer.echo(bench_json(kind, found, disturbances) if json else "\n".join(lines))
    if disturbances and not json:
        typer.echo(warning_of(disturbances), err=True)


def measure(
    session: Session, name: str, file: str, arrays: Sequence[Array], repetition: Repetition,
    progress: Callable[[str, float], None],
) -> tuple[Measurement, list[float]]:
    """Measures calls of function `name`, after first calls that prepare for the shapes; returns the medians of the
    samples as well."""
    from motet.measuring.latency import Caller, latency_of
    from motet.tools.benching.roof import roof_of

    caller = Caller(session, name, arrays)
    caller.prepare(repetition.number, repetition.min_time / repetition.rounds)
    samples = []
    for index in range(repetition.rounds):
        progress(f"sample {index + 1} of {repetition.rounds}", index / repetition.rounds)
        samples.append(caller.sample())
    profile = profile_kernels(session[name], arrays, session.variants, caller.begin_anew, repetition.min_time / 5)
    found = Measurement(
        file=file,
        function=name,
        target=", ".join(variant.target for variant in session.variants),
        threads=session.threads,
        number=caller.number,
        latency=latency_of(samples, caller.group),
        samples=[float(statistics.fmean(sample.seconds)) for sample in samples],
        flops=sum(kernel.flops for kernel in profile.kernels),
        bytes=sum(kernel.bytes for kernel in profile.kernels),
        overhead=profile.overhead,
        traced=profile.calls,
        roof=roof_of(session),
        kernels=profile.kernels,
    )
    return found, [sample.median for sample in samples]


def _lines(result: Measurement, profile: bool) -> list[str]:
    from motet.tools.show import show_seconds

    latency, roof = result.latency, result.roof
    timed = "" if latency.group == 1 else f", timed {latency.group} at a time"
    lines = [
        f"{result.function} on {result.target}, {result.threads} threads: "
        f"{len(result.samples)} samples of {result.number} calls{timed}",
        f"  time per call   {_show_latency(latency)}",
        f"  calls per s     {1 / latency.mean:,.0f}",
    ]
    if result.flops:
        limit = _of_limit(result.flops / latency.p50, 0.0 if roof is None else roof.flops, "GFLOP/s in f32")
        lines.append(f"  computing       {result.flops / latency.p50 / 1e9:,.2f} GFLOP/s{limit}")
    if result.bytes:
        limit = _of_limit(result.bytes / latency.p50, 0.0 if roof is None else roof.bytes, "GB/s")
        lines.append(f"  moving          {result.bytes / latency.p50 / 1e9:,.2f} GB/s{limit}")
    if result.overhead is not None:
        lines.append(f"  outside kernels {show_seconds(result.overhead)} of a call, in {result.traced} traced ones")
    if profile:
        lines += ["", *profile_lines(result.kernels)]
    return lines


def _show_latency(latency: Latency) -> str:
    from motet.tools.show import show_seconds

    return ", ".join(f"{name} {show_seconds(getattr(latency, name))}" for name in ("min", "p50", "p90", "p99"))


def _of_limit(rate: float, limit: float, unit: str) -> str:
    """The share of a limit of this machine; empty for rates above it: those of caches, and of other types."""
    return f", {rate / limit:.0%} of this machine's {limit / 1e9:,.0f} {unit}" if limit and rate <= limit else ""


def _throughput_lines(result: Throughput, function: str, target: str, threads: int) -> list[str]:
    from motet.tools.show import show_seconds

    rows = "" if result.items_per_second is None else f", {result.items_per_second:,.0f} rows per s"
    return [
        f"{function} on {target}, {threads} threads: {result.calls} calls in {show_seconds(result.seconds)}, "
        f"up to {result.in_flight} at the same time",
        f"  throughput      {result.calls_per_second:,.1f} calls per s{rows}",
        f"  time per call   {_show_latency(result.latency)}",
    ]
