"""The way from a program to an artifact, in the order in which it is walked.

Runs inside a compiler worker (see `service`): native crashes here are not the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from motet.artifact.contracts import TargetContract, add_contract, seal
from motet.artifact.kernel_schedules import add_schedules
from motet.artifact.schema import (
    SCHEMA_VERSION,
    Constraint,
    KernelInfo,
    Manifest,
    Parameter,
    Schedule,
    Signature,
    TensorSpec,
    Variant,
)
from motet.compiler.checked import check_wanted
from motet.compiler.codegen.backend import Backend, NoCode, Objects, UnloadableCode, launched, places_of
from motet.compiler.codegen.backends import backend_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.launches import LAUNCH
from motet.compiler.ir.program import (
    DESTINATION,
    DEVICE,
    NAME,
    PARAMETER,
    STRIDED,
    Placement,
    Program,
    caller_dtype,
    state_of,
    value_of,
)
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.attention.matching import is_attention
from motet.compiler.kernels.compose import compose
from motet.compiler.kernels.kernel import Kernel, KernelCode, structure
from motet.compiler.kernels.layout import callee, choose_orders, is_renaming, order_temporaries
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.packing import apply_packing
from motet.compiler.kernels.reader.function_reader import read_kernel
from motet.compiler.kernels.reader.reading import Unreadable, dtype_of
from motet.compiler.kernels.verify import checked
from motet.compiler.passes.fuse.outline_kernels import KIND
from motet.compiler.passes.pipelines import FUSE_FOR_GPU, NORMALISE, OUTLINE
from motet.compiler.passes.running import run_steps
from motet.compiler.placement.faces import as_large_as_destinations, complete
from motet.compiler.placement.families import device_families
from motet.compiler.scheduling.arrangement import Options
from motet.compiler.scheduling.checker import check_manifest
from motet.compiler.scheduling.concurrency import FILLING
from motet.compiler.scheduling.contracts import contracts_of
from motet.compiler.scheduling.requirements import requirements
from motet.compiler.scheduling.schedule import (
    RENAMING,
    Compiled,
    ParameterStore,
    argument_attributes,
    schedule_function,
)
from motet.compiler.scheduling.shapes import Shapes
from motet.compiler.targets.families import families
from motet.compiler.targets.family import Target
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.candidates import Candidates, make_candidates
from motet.compiler.tuning.given import scheduled_kernels
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.errors import CompileError
from motet.version import VERSION

Progress = Callable[[str, float], None]
Packed = tuple[dict[str, np.ndarray], list[Parameter]]
Early = Callable[[Mapping[str, np.ndarray]], None]


@dataclass
class Built:
    """All that an artifact is made of; by target, where they are wanted, the schedules to choose from."""

    manifest: Manifest
    members: dict[str, bytes]
    parameters: dict[str, np.ndarray]
    candidates: dict[str, Candidates] = field(default_factory=dict[str, Candidates])


@dataclass
class Kernels:
    """The kernels of a partitioned program: their functions, and those that could be read into stages."""

    functions: dict[str, ir.Operation]
    readable: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    reasons: dict[str, str] = field(default_factory=dict[str, str])  # why the others could not


def build(
    program: Program, targets: Sequence[Target], jobs: int, progress: Progress, memory_limit: int | None = None,
    candidates: bool = False, choice: Choice = DEFAULT, early: Early | None = None,
) -> Built:
    """Compile `program` for every target, preferred first. Arenas have at most `memory_limit` bytes, where given.
    `candidates` asks for schedules to choose from. `early` is told of the parameters as soon as they are known, if that
    is before all else is; they may change once more."""
    progress("normalise", 0.0)
    normalise(program)
    progress("partition", 0.1)
    gpu_program = fuse_for_gpu(program, targets)
    kernels = partition(program)
    for_gpu = (gpu_program, partition_for_gpu(gpu_program, program, kernels))
    return build_partitioned(
        program, kernels, targets, jobs, progress, memory_limit, candidates, choice, for_gpu, early
    )


def build_partitioned(
    program: Program, kernels: Kernels, targets: Sequence[Target], jobs: int, progress: Progress,
    memory_limit: int | None = None, candidates: bool = False, choice: Choice = DEFAULT,
    for_gpu: tuple[Program, Kernels] | None = None, early: Early | None = None,
) -> Built:
    """`build` from partitioned kernels on; `for_gpu` is the program as it is partitioned for targets that have
    attention as one kernel, if that is different."""
    gpu_program, gpu_kernels = for_gpu or (program, kernels)
    functions = public_functions(program.module)
    try:
        signatures = {
            symbol_name(f): read_signature(f, function_shapes(f, kernels), program.constraints.get(symbol_name(f), ()))
            for f in functions
        }
    except Unreadable as reason:
        raise CompileError(f"{reason} is not supported as an input or result") from None
    store = ParameterStore(gpu_program.parameters)
    members: dict[str, bytes] = {}
    made: Objects = {}
    found: dict[Target, Variant] = {}
    choices: dict[str, Candidates] = {}
    wanted = worthwhile(targets, kernels)
    packed: list[tuple[int, Packed]] = []  # with the number of uses that were known

    def pack_early() -> None:
        packed.append((len(store.uses), pack_parameters(store)))
        if early is not None:
            early(packed[0][1][0])

    for number, target in enumerate(sorted(wanted, key=lambda target: bool(target.base))):
        progress(f"generate code for {target.name}", 0.2 + 0.7 * number / len(wanted))
        fused = backend_of(target).attends
        own_program, own_kernels = (gpu_program, gpu_kernels) if fused else (program, kernels)
        own = [
            function for function in public_functions(own_program.module)
            if runs_on(function, target.family, program.placement)
        ]
        if own or not functions:
            of_target: Candidates | None = {} if candidates else None
            found[target] = build_variant(
                own, own_kernels, target, store, jobs, members, made, memory_limit, of_target, choice,
                pack_early if len(wanted) == 1 else None,
            )
            choices[target.name] = of_target or {}
    variants = [found[target] for target in wanted if target in found]
    progress("pack parameters", 0.9)
    known = packed[0][1] if packed and packed[0][0] == len(store.uses) else None
    parameters, entries = known or pack_parameters(store)
    manifest = Manifest(
        schema=SCHEMA_VERSION, producer=f"motet {VERSION}", functions=list(signatures.values()), variants=variants,
        parameters=entries, members={},
    )
    if check_wanted():
        check_manifest(manifest)
    if program.placement is not None:
        manifest = placed_manifest(manifest, program.placement)
    seal(manifest, members)
    return Built(manifest, members, parameters, choices)


def worthwhile(targets: Sequence[Target], kernels: Kernels) -> list[Target]:
    """`targets` without those whose code would be that of their base, which is compiled for too."""
    names = {target.name for target in targets}
    return [
        target for target in targets
        if target.base not in names or any(map(backend_of(target).gains, kernels.readable.values()))
    ]


def runs_on(function: ir.Operation, family: str, placement: Placement | None) -> bool:
    """Whether the device of a region may turn out to be of `family`. What cost has placed runs on every device, so
    that a session can bind them all to one."""
    if placement is None or placement.automatic or DEVICE not in function.attributes:
        return True
    return family in device_families(placement.devices, ir.StringAttr(function.attributes[DEVICE]).value)


def placed_manifest(manifest: Manifest, placement: Placement) -> Manifest:
    """The functions of the program instead of their regions, and its devices."""
    regions = {signature.name: signature for signature in manifest.functions}
    functions = [
        complete(placement.signatures[name], plan, regions, placement.loops) for name, plan in placement.plans.items()
    ]
    return structs.replace(
        manifest, functions=functions, regions=regions, plans=placement.plans, devices=placement.devices,
        default_device=placement.default, links=placement.links,
    )


# -- stages --------------------------------------------------------------------------------------


def normalise(program: Program) -> None:
    """Canonical linalg; constants as parameters; what operations take for granted of extents as constraints."""
    program.constraints = requirements(program.module)
    run_steps(NORMALISE, program)


def partition(program: Program) -> Kernels:
    """Kernels as functions of their own, each read into stages where it has that form."""
    run_steps(OUTLINE, program)
    return read_kernels(program)


def fuse_for_gpu(program: Program, targets: Sequence[Target]) -> Program:
    """`program`, normalised, as those of `targets` get it that have attention as one kernel (`FUSE_FOR_GPU`). It is
    `program` itself if no target has, if all have, which changes it in place, or if there is nothing to fuse."""
    backends = [backend for backend in map(backend_of, targets) if backend.attends]
    if not backends:
        return program
    if len(backends) == len(targets):
        _run_gpu_passes(program, backends)
        return program
    text = program.module.operation.get_asm(enable_debug_info=True)
    copy = Program(ir.Module.parse(text, context=program.module.context), program.parameters, program.placement)
    changed = _run_gpu_passes(copy, backends)
    program.parameters = copy.parameters  # both share them, with those that were made of others
    return copy if changed else program


def _run_gpu_passes(program: Program, backends: Sequence[Backend]) -> bool:
    def fuses(kernel: Kernel) -> bool:
        return is_attention(kernel) and all(backend.fuses(kernel) for backend in backends)

    def joins(products: Sequence[ProductShape]) -> bool:
        return all(backend.joins(products) for backend in backends)

    options = {"fuse-attention": {"accepts": fuses}, "fuse-multi-gemm": {"accepts": joins}}
    return run_steps(FUSE_FOR_GPU, program, options)


def partition_for_gpu(gpu_program: Program, program: Program, kernels: Kernels) -> Kernels:
    """Partition `gpu_program` where it is another than `program`, whose kernels are `kernels`. Both share their
    parameters: what was folded for one is not folded again."""
    if gpu_program is program:
        return kernels
    gpu_program.parameters = program.parameters
    return partition(gpu_program)


def read_kernels(program: Program) -> Kernels:
    """The kernels of a program whose kernels are functions of their own."""
    functions = {
        symbol_name(entry.operation): entry.operation
        for entry in program.module.body.operations
        if KIND in entry.operation.attributes
    }
    kernels = Kernels(functions)
    for name, function in functions.items():
        if LAUNCH in function.attributes:
            kernels.reasons[name] = "a launch as it was written"
            continue
        try:
            kernels.readable[name] = checked(compose(checked(read_kernel(function), "reading")), "compose")
        except Unreadable as reason:
            kernels.reasons[name] = str(reason)
    return kernels


# -- one target ----------------------------------------------------------------------------------


def build_variant(
    functions: list[ir.Operation],
    kernels: Kernels,
    target: Target,
    store: ParameterStore,
    jobs: int,
    members: dict[str, bytes],
    made: Objects,
    memory_limit: int | None = None,
    candidates: Candidates | None = None,
    choice: Choice = DEFAULT,
    meanwhile: Callable[[], None] | None = None,
) -> Variant:
    """Code and schedules for one target; objects are added to `members`, and to `made` which unit each is of.
    Units that are the same for the target's base are its objects. Schedules to choose from are added to
    `candidates`, where it is given. `meanwhile` is called where other processes make code, when all uses of parameters
    are known."""
    family = families()[target.family]
    filling = max(FILLING, target.processors) if isinstance(target, GpuTarget) else FILLING
    options = Options(memory_limit, family.streams, filling)
    backend = backend_of(target, choice)
    drafted = compile_kernels(functions, kernels, backend)
    begun = backend.begin(drafted, jobs)
    shapes = {symbol_name(function): (function, function_shapes(function, kernels)) for function in functions}

    def scheduled(compiled: Mapping[str, Compiled]) -> dict[str, Schedule]:
        return {name: schedule_function(*known, compiled, store, options) for name, known in shapes.items()}

    draft = scheduled(drafted) if begun is not None else {}
    if begun is not None and meanwhile is not None:
        meanwhile()
    try:
        compiled, paths = backend.assemble(drafted, jobs, members, made, begun)
    except UnloadableCode as refusal:
        raise _unloadable(refusal, drafted, kernels) from None
    # What was taken is mostly what was expected: launches are then those of the draft.
    expected = all(entry.code.phases == drafted[name].code.phases for name, entry in compiled.items())
    schedules = draft if begun is not None and expected else scheduled(compiled)
    kernel_contracts = contracts_of(compiled, kernels.functions)
    add_contract(members, TargetContract(
        target.family, target.name, target.triple, list(target.requires), paths, kernel_contracts,
    ))
    infos = _kernel_infos(kernels, compiled)
    codes = {name: entry.code for name, entry in compiled.items()}
    add_schedules(members, scheduled_kernels(codes, target, {info.name: info.source for info in infos}))
    if candidates is not None:
        for name, known in shapes.items():
            make = functools.partial(schedule_function, *known, compiled, store)
            candidates[name] = make_candidates(make, options)
    return Variant(
        family=target.family, target=target.name, triple=target.triple, features=list(target.requires), objects=paths,
        schedules=schedules, kernels=infos,
    )


def _unloadable(refusal: UnloadableCode, compiled: Mapping[str, Compiled], kernels: Kernels) -> NoCode:
    functions = [
        kernels.functions[name] for name, entry in compiled.items()
        if any(phase.symbol == refusal.symbol for phase in entry.code.phases)
    ]
    location = source_location(functions[0]) if functions else None
    return NoCode(refusal.message, location, frozenset[str]().union(*map(places_of, functions)))


def compile_kernels(functions: list[ir.Operation], kernels: Kernels, backend: Backend) -> dict[str, Compiled]:
    """Code for every kernel, by the class that takes it or by the generic path."""
    laid_out, codes = generate_all(functions, kernels, backend)
    called = {callee(e.operation) for f in functions for e in f.regions[0].blocks[0].operations if _is_call(e)}
    return {
        name: _compiled(name, kernels, laid_out, codes[name], backend) for name in kernels.functions if name in called
    }


def _is_call(entry: ir.Operation) -> bool:
    return entry.operation.name == "func.call"


def kernel_text(program: Program, kernels: Kernels, target: Target, stage: str) -> str:
    """A partitioned program's kernels as `--emit` shows them at `llvm` or `assembly`."""
    backend = backend_of(target)
    return backend.text(compile_kernels(public_functions(program.module), kernels, backend), stage)


def generate_all(
    functions: list[ir.Operation], kernels: Kernels, backend: Backend
) -> tuple[dict[str, Kernel], dict[str, KernelCode | None]]:
    """Kernels with their data layouts, and code for those that some class takes.

    A kernel that no class takes with the layouts chosen for it makes its data row-major, and the choice is
    made again.
    """
    row_major_only: frozenset[str] = frozenset()
    made: dict[tuple[Kernel, str], KernelCode | None] = {}
    named = {name for name, _ in backend.choice.schedules.kernels}  # kernels whose code is their own
    while True:
        laid_out: dict[str, Kernel] = {}
        for function in functions:
            block = function.regions[0].blocks[0]
            orders = choose_orders(block, kernels.readable, row_major_only)
            for entry in block.operations:
                if entry.operation.name == "func.call" and callee(entry.operation) in kernels.readable:
                    name = callee(entry.operation)
                    laid_out[name] = _with_orders(kernels.readable[name], entry.operation, orders)
        codes: dict[str, KernelCode | None] = {}
        refused: set[str] = set()
        for name, kernel in laid_out.items():
            key = structure(kernel), name if name in named else ""
            if key not in made:
                made[key] = _generated(kernel, kernels.functions[name], backend)
            codes[name] = made[key]
            moved = any(value.order != tuple(range(value.rank)) for value in kernel.values)
            if codes[name] is None and moved:
                refused.add(name)
        if not refused:
            return laid_out, {name: codes.get(name) for name in kernels.functions}
        row_major_only |= refused


def _generated(kernel: Kernel, function: ir.Operation, backend: Backend) -> KernelCode | None:
    if is_renaming(kernel):
        return KernelCode(RENAMING, "", ())
    try:
        return backend.generate(kernel)
    except NoCode as refusal:
        raise NoCode(refusal.message, refusal.location, places_of(function)) from None


def _with_orders(kernel: Kernel, call: ir.Operation, orders: Mapping[ir.Value, tuple[int, ...]]) -> Kernel:
    operands = iter(kernel.arguments)
    results = iter(call.results)
    values = []
    for value in kernel.values:
        if value.role in ("argument", "constant"):
            order = orders.get(call.operands[next(operands)])
        elif value.role == "result":
            order = orders.get(next(results))
        else:
            order = None
        values.append(value if order is None else replace(value, order=order))
    return checked(order_temporaries(replace(kernel, values=tuple(values))), "the choice of layouts")


def _compiled(
    name: str, kernels: Kernels, laid_out: Mapping[str, Kernel], code: KernelCode | None, backend: Backend
) -> Compiled:
    if code is None:
        return backend.generic(kernels.functions[name], name, kernels.reasons.get(name, ""))
    return launched(laid_out[name], code)


def function_shapes(function: ir.Operation, kernels: Kernels) -> Shapes:
    """The extents of every value of a public function, calls included."""
    shapes = Shapes(function)
    for entry in function.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name != "func.call":
            shapes.read(operation)
            continue
        inner = Shapes(kernels.functions[callee(operation)])
        for argument, operand in zip(
            kernels.functions[callee(operation)].regions[0].blocks[0].arguments, operation.operands, strict=True
        ):
            inner.tensors[argument] = shapes.of(operand)
        returned = inner.results_of(kernels.functions[callee(operation)])
        shapes.equalities += [pair for pair in inner.equalities if pair not in shapes.equalities]
        shapes.tensors.update(zip(operation.results, returned, strict=True))
    return shapes


def _kernel_infos(kernels: Kernels, compiled: Mapping[str, Compiled]) -> list[KernelInfo]:
    return [
        KernelInfo(
            name=name, kind=entry.code.kind, flops=entry.code.flops, bytes=entry.code.bytes,
            source=kernels.reasons.get(name, "") or ir.StringAttr(kernels.functions[name].attributes[KIND]).value,
        )
        for name, entry in compiled.items()
    ]


# -- signatures and parameters -------------------------------------------------------------------


def read_signature(function: ir.Operation, shapes: Shapes, required: Sequence[Constraint] = ()) -> Signature:
    """What the caller sees of a function: its inputs and results without the parameters. `required` is what its
    operations take for granted as the source has them; its kernels may take more."""
    block = function.regions[0].blocks[0]
    attributes = argument_attributes(function, len(block.arguments))
    inputs = [
        TensorSpec(
            _name(attribute, f"arg{index}"), list(shapes.of(argument)),
            caller_dtype(dtype_of(argument.type), attribute), strided=attribute is not None and STRIDED in attribute,
            value=value_of(attribute), state=state_of(attribute),
        )
        for index, (argument, attribute) in enumerate(zip(block.arguments, attributes, strict=True))
        if attribute is None or PARAMETER not in attribute
    ]
    terminator = block.operations[len(block.operations) - 1].operation
    found: list[ir.DictAttr | None] = (
        [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["res_attrs"])]
        if "res_attrs" in function.attributes
        else [None] * len(terminator.operands)
    )
    results = [
        TensorSpec(
            _name(attribute, f"result{index}"), list(shapes.of(operand)),
            caller_dtype(dtype_of(operand.type), attribute),
            None if attribute is None or DESTINATION not in attribute else ir.IntegerAttr(attribute[DESTINATION]).value,
            state=state_of(attribute),
        )
        for index, (operand, attribute) in enumerate(zip(terminator.operands, found, strict=True))
    ]
    known = {frozenset((str(each.left), str(each.right))) for each in required if each.relation == "equal"}
    more = [Constraint(a, b) for a, b in shapes.equalities if frozenset((str(a), str(b))) not in known]
    constraints = [*required, *more]
    results = as_large_as_destinations(inputs, results, constraints)
    return Signature(symbol_name(function), inputs, results, shapes.symbols, constraints)


def _name(attribute: ir.DictAttr | None, default: str) -> str:
    return default if attribute is None or NAME not in attribute else ir.StringAttr(attribute[NAME]).value


def pack_parameters(store: ParameterStore) -> Packed:
    """Every parameter in the layout in which a kernel wants it."""
    arrays: dict[str, np.ndarray] = {}
    entries: list[Parameter] = []
    for (key, packing, shape), index in store.uses.items():
        array = store.arrays[key]
        name = key
        if packing is not None:
            array = apply_packing(np.asarray(array).reshape(shape), packing)
            array = array.reshape(-1).view(np.uint8)
            name = f"{key}.packed{index}"
        arrays[name] = array
        entries.append(Parameter(name, "ui8" if packing else _spelling(array), list(array.shape)))
    return arrays, entries


def _spelling(array: np.ndarray) -> str:
    from motet.artifact.dtypes import spelling

    return spelling(array.dtype)

