"""The steps from a program to an artifact, in order.

Runs inside a compiler worker (see `service`), so that native crashes do not affect the user's process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from motet.artifact.contracts import seal
from motet.artifact.parameters import StoredArray
from motet.artifact.schema import SCHEMA_VERSION, Manifest, Signature, Variant
from motet.compiler.build.lower_to_tensors import LowerToTensors
from motet.compiler.build.normal_form import NormalForm
from motet.compiler.build.parameters import Packed, pack_parameters
from motet.compiler.build.partitioning import Kernels, Partitioned, partition_for
from motet.compiler.build.variant import PLAIN, Output, VariantOptions, build_variant
from motet.compiler.codegen.backends import backend_of
from motet.compiler.frontends.locations import compile_error
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import DEVICE, Placement, Program
from motet.compiler.kernels.checked import check_wanted
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.passes.fuse.narrow_products import PRECISION
from motet.compiler.passes.pipelines import Cleaned
from motet.compiler.passes.running import run_named, run_pass, run_steps
from motet.compiler.placement.erase_devices import EraseDevices
from motet.compiler.placement.families import device_families
from motet.compiler.placement.place import Place, annotate
from motet.compiler.placement.signatures import complete
from motet.compiler.scheduling.checker import check_manifest
from motet.compiler.scheduling.requirements import requirements
from motet.compiler.scheduling.schedule import ParameterStore
from motet.compiler.scheduling.signatures import read_signature
from motet.compiler.sharding.shard import Shard
from motet.compiler.targets.family import Target
from motet.compiler.tuning.candidates import Candidates
from motet.errors import CompileError
from motet.version import VERSION

ONE_DEVICE = EraseDevices()  # in place of `Place`: the program runs as a whole on any device
UNSHARDED = Shard()  # over the program's own mesh, if it has one
Progress = Callable[[str, float], None]
Early = Callable[[Mapping[str, StoredArray]], None]


@dataclass
class Built:
    """The contents of an artifact; by target, if requested, the candidate schedules."""

    manifest: Manifest
    members: dict[str, bytes]
    parameters: Mapping[str, StoredArray]
    candidates: dict[str, Candidates] = field(default_factory=dict[str, Candidates])


def prepare(program: Program, place: Place | EraseDevices = ONE_DEVICE, shard: Shard = UNSHARDED) -> None:
    """Bring what a front end has built to normal form, divided over its mesh and split by device. Raises CompileError,
    at its place in the source."""
    with _reported_at_source(program):
        for stage in (LowerToTensors(), shard, place, NormalForm()):
            run_pass(stage, program)


def annotate_devices(program: Program, place: Place) -> str:
    """What a front end has built, as text, with what is known of where its operations run in place of splitting it."""
    with _reported_at_source(program):
        run_pass(LowerToTensors(), program)
        annotate(program, place)
    return str(program.module)


@contextlib.contextmanager
def _reported_at_source(program: Program) -> Generator[None]:
    """Work on what a front end has built. What MLIR says of it becomes a CompileError with its place."""
    context = program.module.context
    context.allow_unregistered_dialects = True  # the attributes named motet.…
    try:
        with context, ir.Location.unknown():
            yield
    except ir.MLIRError as error:
        raise compile_error(error, program.file) from None


def build(
    program: Program, targets: Sequence[Target], jobs: int, progress: Progress,
    options: VariantOptions = PLAIN, early: Early | None = None,
) -> Built:
    """Compile `program` for every target, in order of preference. `early` gets the parameters as soon as they are
    known, if that is before the end; they may change once more."""
    progress("normalise", 0.0)
    normalise(program)
    progress("partition", 0.1)
    return build_partitioned(partition_for(program, targets), targets, jobs, progress, options, early)


def normalise(program: Program) -> None:
    """Normalise to canonical linalg, with constants as parameters and requirements on extents as constraints, and
    products in the requested precision."""
    program.constraints = requirements(program.module)
    run_named("normalise", program)
    if PRECISION in program.module.operation.attributes:
        dtype = ir.StringAttr(program.module.operation.attributes[PRECISION]).value
        step = "quantise-products" if dtype == "int8" else f"narrow-products{{dtype={dtype}}}"
        run_steps((Cleaned((step,)),), program)


def build_partitioned(
    partitioned: Partitioned, targets: Sequence[Target], jobs: int, progress: Progress,
    options: VariantOptions = PLAIN, early: Early | None = None,
) -> Built:
    """Build a partitioned program; see `build`."""
    program = partitioned.program
    functions = public_functions(program.module)
    signatures = _signatures(functions, partitioned)
    output = Output(ParameterStore(partitioned.gpu_program.parameters))
    found: dict[Target, Variant] = {}
    wanted = worthwhile(targets, partitioned.kernels)
    packed: list[tuple[int, Packed]] = []  # with the number of uses known at that time

    def pack_early() -> None:
        packed.append((len(output.store.uses), pack_parameters(output.store)))
        if early is not None:
            early(packed[0][1][0])

    # A level follows those that it extends, whose code it shares: it requires more features.
    ordered = sorted(wanted, key=lambda target: len(target.requires) if target.base else 0)
    for number, target in enumerate(ordered):
        progress(f"generate code for {target.name}", 0.2 + 0.7 * number / len(wanted))
        own_program, own_kernels = partitioned.of(target)
        own = [
            function for function in public_functions(own_program.module)
            if runs_on(function, target.family, program.placement)
        ]
        if own or not functions:
            meanwhile = pack_early if target is ordered[-1] else None
            found[target] = build_variant(own, own_kernels, target, jobs, output, options, meanwhile)
    progress("pack parameters", 0.9)
    known = packed[0][1] if packed and packed[0][0] == len(output.store.uses) else None
    parameters, entries = known or pack_parameters(output.store)
    manifest = Manifest(
        schema=SCHEMA_VERSION, producer=f"motet {VERSION}", functions=signatures,
        variants=[found[target] for target in wanted if target in found], parameters=entries, members={},
    )
    if check_wanted():
        check_manifest(manifest)
    if program.placement is not None:
        manifest = placed_manifest(manifest, program.placement)
    seal(manifest, output.members)
    return Built(manifest, output.members, parameters, output.candidates)


def _signatures(functions: Sequence[ir.Operation], partitioned: Partitioned) -> list[Signature]:
    constraints, kernels = partitioned.program.constraints, partitioned.kernels
    try:
        return [
            read_signature(each, kernels.shapes_of(each), constraints.get(symbol_name(each), ()))
            for each in functions
        ]
    except Unreadable as reason:
        raise CompileError(f"{reason} is not supported as an input or result") from None


def worthwhile(targets: Sequence[Target], kernels: Kernels) -> list[Target]:
    """`targets` without those whose code would equal that of their base, which is also compiled for in their family."""
    known = {(target.family, target.name) for target in targets}
    return [
        target for target in targets
        if (target.family, target.base) not in known
        or any(map(backend_of(target).improves_on_base, kernels.readable.values()))
    ]


def runs_on(function: ir.Operation, family: str, placement: Placement | None) -> bool:
    """Whether the device of a region may be of `family`. Regions placed by cost run on every device, so that a session
    can bind all of them to one."""
    if placement is None or placement.automatic or DEVICE not in function.attributes:
        return True
    return family in device_families(placement.devices, ir.StringAttr(function.attributes[DEVICE]).value)


def placed_manifest(manifest: Manifest, placement: Placement) -> Manifest:
    """The manifest with the functions of the program instead of their regions, and with its devices."""
    regions = {signature.name: signature for signature in manifest.functions}
    functions = [
        complete(placement.signatures[name], plan, regions, placement.loops) for name, plan in placement.plans.items()
    ]
    return structs.replace(
        manifest, functions=functions, regions=regions, plans=placement.plans, devices=placement.devices,
        default_device=placement.default, links=placement.links,
    )
