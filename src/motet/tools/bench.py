"""motet bench: measures the duration of a call, and how it is spent."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import CallError, OptionError
from motet.tools import arguments
from motet.tools.profile import KernelTime, profile_kernels, profile_lines

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.schema import Signature
    from motet.runtime.function import Function
    from motet.runtime.session import Session
    from motet.tools.opening import Opened
    from motet.tools.placements import Comparison, Repetition
    from motet.tools.specs import Array

HELP = """Measure how long a call takes.

Inputs are random by default. A sample is the mean of N calls (--number), by default as many as fill its share of
--min-time; the fastest sample and the median of all samples are shown.

\b
Examples:
  motet bench model.motet
  motet bench model.mlir --input 64x128xf32=random:1 --repeat 20 --threads 1
  motet bench model.motet --profile
  motet bench model.motet --json
  motet bench model.onnx --verify                  compares one call with the oracle first
  motet bench model.motet --compare-placements     over its devices as placed, and on each of them alone
"""

@dataclass(frozen=True)
class Measurement:
    """The measurement of a function: seconds and work per call (0 for unknown work)."""

    function: str
    target: str
    threads: int
    number: int
    samples: list[float]
    fastest: float
    median: float
    flops: int
    bytes: int
    overhead: float  # of the fastest call: the time outside kernels
    kernels: list[KernelTime]


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds}: expected a number of seconds")
    return seconds


# The parameters of this function are the options of `motet bench`, read by typer.
def bench_function(
    file: arguments.Runnable,
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
    from motet.tools import verifying
    from motet.tools.opening import open_bound, start_session
    from motet.tools.placements import Repetition
    from motet.tools.progress import Progress
    from motet.tools.run import choose_function, write_trace
    from motet.tools.specs import parse_spec

    verifying.check_options(verify, oracle)
    given = [parse_spec(text) for text in input or []]
    if compare_placements:
        _expect_alone("--trace" if trace is not None else "", "--verify" if verify else "")
        opened, bindings = open_bound(file, format=format, devices=device or [], placement=placement,
                                      places=place or [])
        signature = choose_function(opened.artifact.callable_functions, function, file)
        repetition = Repetition(repeat, number, min_time)
        _compare(opened.artifact, bindings, signature.name, _inputs(given, signature, file), threads, repetition, json)
        return
    session, opened = start_session(file, format=format, devices=device or [], threads=threads,
                                    placement=placement, places=place or [])
    signature = choose_function(opened.artifact.callable_functions, function, file)
    arrays = _inputs(given, signature, file)
    if verify:
        verifying.check_verifiable(opened, file)
        _verify(session, opened, signature.name, arrays, oracle, json)
    with Progress(f"measuring {signature.name}") as progress:
        measurement = measure(session, signature.name, arrays, repeat, number, min_time, progress.update)
    if trace is not None:
        write_trace(session, session[signature.name], arrays, trace)
    _print(measurement, _lines(measurement, profile), json)


def _expect_alone(*options: str) -> None:
    if given := [option for option in reversed(options) if option]:
        raise OptionError(
            f"{given[0]}: not with --compare-placements, which calls the program in several ways; measure without it"
        )


def _inputs(given: list[Array], signature: Signature, file: str) -> list[Array]:
    """`given`, validated, or random arrays if none are given. Raises CallError."""
    from motet.tools.run import check_inputs

    arrays = given or random_inputs(signature, file)
    check_inputs(signature, arrays, file)
    return arrays


def _verify(
    session: Session, opened: Opened, name: str, arrays: Sequence[Array], oracle: str, json: bool
) -> None:
    """Verifies one call before the measurement: the time of a wrong result is irrelevant."""
    from motet.tools.run import call
    from motet.tools.verifying import verify

    before = [array.copy() for array in arrays]  # a destination is overwritten by the call
    verify(opened, name, before, call(session[name], [array.copy() for array in arrays]), oracle, err=json)

def _compare(
    artifact: Artifact, bindings: Mapping[str, str], name: str, arrays: Sequence[Array], threads: int | None,
    repetition: Repetition, json: bool,
) -> None:
    from motet.tools.placements import compare_placements, comparison_lines
    from motet.tools.progress import Progress

    if not artifact.manifest.plans:
        raise OptionError(f"--compare-placements: {artifact.name} has no devices to place it on; expected a program "
                          "compiled with several, such as --device a=host --device b=null --placement auto")
    with Progress(f"measuring {name}") as progress:
        result = compare_placements(artifact, bindings, name, arrays, threads, repetition, progress.update)
    _print(result, comparison_lines(result), json)


def _print(found: Measurement | Comparison, lines: Sequence[str], json: bool) -> None:
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode())
        return
    typer.echo("\n".join(lines))


def random_inputs(signature: Signature, file: str) -> list[Array]:
    """An array for each input. Raises CallError for inputs with dynamic extents."""
    from motet.tools.show import show_signature, show_tensor
    from motet.tools.specs import random_tensor

    arrays: list[Array] = []
    for index, spec in enumerate(signature.inputs):
        extents = [extent for extent in spec.shape if isinstance(extent, int)]
        if len(extents) < len(spec.shape):
            raise CallError(f"{file}: input {index} of {show_signature(signature)} has dynamic extents; "
                            f"give every input, this one as --input {show_tensor(spec)} with numbers")
        arrays.append(random_tensor(extents, spec.dtype, index))
    return arrays


def measure(
    session: Session,
    name: str,
    arrays: Sequence[Array],
    repeat: int,
    number: int | None,
    min_time: float,
    progress: Callable[[str, float], None],
) -> Measurement:
    """Measures calls of function `name`, after a first call that prepares for the shapes."""
    function = session[name]
    function(*arrays)
    if number is None:
        number = _calibrate(function, arrays, min_time / repeat)
    samples: list[float] = []
    for index in range(repeat):
        progress(f"sample {index + 1} of {repeat}", index / repeat)
        _begin_anew(session)
        samples.append(_sample(function, arrays, number))
    kernels = profile_kernels(function, arrays, session.variants, lambda: _begin_anew(session))
    fastest = min(samples)
    return Measurement(
        function=name,
        target=", ".join(variant.target for variant in session.variants),
        threads=session.threads,
        number=number,
        samples=samples,
        fastest=fastest,
        median=statistics.median(samples),
        flops=sum(kernel.flops for kernel in kernels),
        bytes=sum(kernel.bytes for kernel in kernels),
        overhead=max(0.0, fastest - sum(kernel.seconds for kernel in kernels)),
        kernels=kernels,
    )


def _begin_anew(session: Session) -> None:
    """Resets state to its initial values: a state such as the position in a cache may limit the number of calls."""
    session.state.reset()
    session.state.current()


def _sample(function: Function, arrays: Sequence[Array], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        function(*arrays)
    return (time.perf_counter() - start) / number


def _calibrate(function: Function, arrays: Sequence[Array], seconds: float) -> int:
    """The number of calls that take about `seconds`."""
    number = 1
    while True:
        elapsed = _sample(function, arrays, number) * number
        if elapsed >= seconds / 4:
            return max(1, round(number * seconds / elapsed))
        number *= 4


def _lines(result: Measurement, profile: bool) -> list[str]:
    from motet.tools.show import show_seconds

    lines = [
        f"{result.function} on {result.target}, {result.threads} threads: "
        f"{len(result.samples)} samples of {result.number} calls",
        f"  time per call   min {show_seconds(result.fastest)}, median {show_seconds(result.median)}",
        f"  calls per s     {1 / result.fastest:,.0f}",
    ]
    if result.flops:
        lines.append(f"  computing       {result.flops / result.fastest / 1e9:,.2f} GFLOP/s")
    if result.bytes:
        lines.append(f"  moving          {result.bytes / result.fastest / 1e9:,.2f} GB/s")
    lines.append(f"  outside kernels {show_seconds(result.overhead)}")
    if profile:
        lines += ["", *profile_lines(result.kernels)]
    return lines
