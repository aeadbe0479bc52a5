"""motet run: calls one function of an artifact or a program, and prints, saves or checks its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet.errors import CallError, OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.artifact.schema import KernelInfo, Signature
    from motet.ranks import RankedSession
    from motet.runtime.function import Function
    from motet.runtime.session import Session
    from motet.specs import Array
    from motet.tools.opening import Opened

HELP = """Run a function and print its results.

\b
Examples:
  motet run model.motet --input 1x3x224x224xf32=random:0
  motet run model.mlir --function main --input @x.npy --output y.npy
  motet run model.mlir --input 4xf32=1,2,3,4 --expected 4xf32=2,4,6,8
  motet run model.mlir --input 64x128xf32=random:1 --verify
  motet run model.onnx --input 1x3x224x224xf32=random:0 --verify --oracle onnxruntime

--expected compares with a tolerance that depends on the type; --verify compares with upstream MLIR's plain lowering
of the same program, or with the oracle that --oracle names. Both exit with status 1 if results differ. Without
--input, --verify takes random inputs.

\b
Over several processes, of one machine or several:
  mpiexec -n 2 motet run model.mlir --verify --device a=rank:0/host --device b=rank:1/host
"""


# The parameters of this function are the options of `motet run`, read by typer.
def run_function(
    file: arguments.Runnable,
    function: arguments.Function = None,
    input: arguments.Inputs = None,
    output: Annotated[list[str] | None, typer.Option(
        "--output", metavar="FILE.npy", show_default=False,
        help="Save the results, in order, in numpy's format, instead of printing them.",
    )] = None,
    expected: Annotated[list[str] | None, typer.Option(
        "--expected", metavar="SPEC", show_default=False,
        help="The expected results, in order; written like inputs.",
    )] = None,
    device: arguments.Bindings = None,
    format: arguments.Format = "auto",
    verify: arguments.Verify = False,
    oracle: arguments.Oracle = "upstream",
    threads: arguments.Threads = None,
    placement: arguments.Placement = "default",
    place: arguments.Places = None,
    mesh: arguments.Mesh = "",
    shard: arguments.Shards = None,
    trace: Annotated[str | None, typer.Option(
        metavar="FILE.json", show_default=False,
        help="Write a trace of the call, for Perfetto (ui.perfetto.dev), chrome://tracing or motet inspect "
        "--html.",
    )] = None,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Do not run: print the device of this machine that each device of the program would be.",
    )] = False,
) -> None:
    from motet.specs import parse_spec
    from motet.tools import run_ranks, verifying
    from motet.tools.opening import load_opened, open_bound

    with run_ranks.ranks_of_launcher() as ranks:
        if ranks is not None and not ranks.leads:
            ranks.follow(threads)
            return
        verifying.check_options(verify, oracle)
        if dry_run:
            _show_choices(file, format, device or [], placement, place or [])
            return
        arrays, wanted = ([parse_spec(text) for text in texts or []] for texts in (input, expected))
        wishes = _Wishes(file, output or [], wanted, trace, oracle if verify else "")
        opened, bindings = open_bound(
            file, format=format, devices=device or [], placement=placement, places=place or [], mesh=mesh,
            shards=shard or [],
        )
        session = load_opened(opened, bindings, threads) if ranks is None else None
        signature = choose_function(opened.artifact.callable_functions, function, file)
        if verify and not arrays:
            arrays = run_ranks.random_inputs(signature)
        _check(signature, arrays, opened, wishes)
        if session is None:
            assert ranks is not None
            path = "" if opened.request is not None else file
            told = run_ranks.Announcement(signature.name, path, bindings, trace is not None)
            session = ranks.load(opened, told, threads)
        with session:
            _run(session, opened, signature.name, arrays, wishes)


@dataclass(frozen=True)
class _Wishes:
    """What the user wants to have of the results: files, expected ones, a trace, an oracle to compare with."""

    file: str
    output: Sequence[str]
    expected: Sequence[Array]
    trace: str | None
    oracle: str


def _check(signature: Signature, arrays: Sequence[Array], opened: Opened, wishes: _Wishes) -> None:
    """Raises MotetError for options that do not apply to the function."""
    from motet.tools import verifying

    check_inputs(signature, arrays, wishes.file)
    if wishes.oracle:
        verifying.check_verifiable(opened, wishes.file)
    for option, given in (("--output", wishes.output), ("--expected", wishes.expected)):
        if len(given) > len(signature.results):
            raise OptionError(f"{option}: {len(given)} given; {signature.name} has {len(signature.results)} "
                              "results")


def _run(
    session: Session | RankedSession, opened: Opened, name: str, arrays: Sequence[Array], wishes: _Wishes
) -> None:
    """Calls the function, and does with its results what the user wishes."""
    from motet.tools import verifying

    # The call overwrites a destination; the oracle needs its previous contents.
    before = [array.copy() for array in arrays] if wishes.oracle else arrays
    called, trace = session[name], wishes.trace
    results = call(called, arrays) if trace is None else write_trace(session, called, arrays, trace)
    _deliver(results, wishes.output)
    differences = _check_expected(results, wishes.expected)
    if wishes.oracle:
        verifying.verify(opened, name, before, results, wishes.oracle)
    if differences:
        raise CallError("; ".join(differences))


def _deliver(results: Sequence[Array], files: Sequence[str]) -> None:
    """Saves the first results to `files`, and prints the others."""
    from motet.specs import type_name

    for index, result in enumerate(results):
        if index < len(files):
            _save(result, files[index])
        else:
            typer.echo(f"result {index}: {type_name(result)} = {_show(result)}")


def _show_choices(
    file: str, format: str, devices: Sequence[str], placement: str, places: Sequence[str]
) -> None:
    from motet.runtime.device import probe
    from motet.runtime.selection import explain, needed_families
    from motet.tools.opening import open_bound

    opened, bindings = open_bound(file, format=format, devices=devices, placement=placement, places=places)
    manifest = opened.artifact.manifest
    families = needed_families(manifest.devices, manifest.variants, bindings)
    present = [info for family in families for info in probe(family)]
    for line in explain(manifest, bindings, present, opened.artifact.name):
        typer.echo(line)


def choose_function(signatures: Sequence[Signature], name: str | None, file: str) -> Signature:
    """The function named `name`, or without a name the only function or `main`. Raises CallError if there is none."""
    from motet.tools.show import show_signature

    for signature in signatures:
        if signature.name == (name or "main") or (name is None and len(signatures) == 1):
            return signature
    known = "; ".join(map(show_signature, signatures)) or "none"
    asked = f"no function '{name}'" if name else "several functions, and none is called main"
    raise CallError(f"{file}: {asked}; choose one with --function; there are: {known}")


def check_inputs(signature: Signature, arrays: Sequence[Array], file: str) -> None:
    """Raises CallError, with the signature, unless there is one array for each input."""
    from motet.tools.show import show_signature, show_tensor

    if len(arrays) != len(signature.inputs):
        options = " ".join(f"--input {show_tensor(spec)}=…" for spec in signature.inputs)
        unknown = [e for spec in signature.inputs for e in spec.shape if not isinstance(e, int)]
        numbers = f", with numbers for {', '.join(dict.fromkeys(map(str, unknown)))}" if unknown else ""
        raise CallError(f"{file}: {len(arrays)} inputs given, {len(signature.inputs)} expected by "
                        f"{show_signature(signature)}; give {options or 'no --input'}{numbers}")


def call(function: Any, arrays: Sequence[Array]) -> list[Array]:
    """The function's results as a list."""
    from motet.runtime.tensors import as_list

    return as_list(function(*arrays))


def write_trace(
    session: Session | RankedSession, function: Function, arrays: Sequence[Array], target: str
) -> list[Array]:
    """Calls the function, and writes a trace of the call to the file `target`; returns the results."""
    from motet.artifact.files import atomic_file
    from motet.artifact.kernels import KernelTable
    from motet.runtime.tensors import as_list
    from motet.runtime.trace import chrome_trace
    from motet.tools.origin import origin

    results, events = function.trace(*arrays)
    bound = {choice.device.name: (choice.info.uri, choice.variant) for choice in session.devices}
    bound = bound or {"": ("host", session.variants[0])}
    kernels = {uri: KernelTable([variant]) for uri, variant in bound.values()}

    def find(uri: str, symbol: str) -> KernelInfo | None:
        return kernels[uri].find(symbol) if uri in kernels else None

    other = {
        "devices": {name: {"uri": uri, "target": variant.target} for name, (uri, variant) in bound.items()},
        "inputs": [list(array.shape) for array in arrays],
        **asdict(origin(getattr(session, "threads", None))),
    }
    with atomic_file(Path(target)) as stream:
        stream.write(chrome_trace(events, function.name, find, other).encode())
    typer.echo(f"{target}: {len(events)} events on {len({traced.device for traced in events})} devices", err=True)
    return as_list(results)


def _show(result: Array) -> str:
    import numpy as np

    text = np.array2string(result, threshold=64, edgeitems=3, separator=", ", max_line_width=110)
    return text if "\n" not in text else "\n" + text


def _save(result: Array, target: str) -> None:
    import numpy as np

    from motet.artifact.files import atomic_file
    from motet.specs import type_name

    path = Path(target.removeprefix("@"))
    with atomic_file(path) as stream:
        np.save(stream, result, allow_pickle=False)
    typer.echo(f"{path}: {type_name(result)}")


def _check_expected(results: Sequence[Array], wanted: Sequence[Array]) -> list[str]:
    """Prints which results agree; returns the differences, one sentence for each result."""
    from motet.specs import compare, type_name

    differences: list[str] = []
    for index, (result, expected) in enumerate(zip(results, wanted, strict=False)):
        if type_name(result) != type_name(expected):
            differences.append(f"result {index}: it is {type_name(result)}, expected {type_name(expected)}")
            continue
        difference = compare(result, expected)
        if difference.first is None:
            typer.echo(f"result {index}: as expected, max abs error {difference.largest:.3g}")
        else:
            first = difference.first
            differences.append(
                f"result {index}: {difference.count} of {result.size} elements differ, the first at "
                f"{list(first)}: {result[first]}, expected {expected[first]}; "
                f"max abs error {difference.largest:.3g}"
            )
    return differences
