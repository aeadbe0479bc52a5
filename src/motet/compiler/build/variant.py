"""Builds the code and the schedules of a partitioned program for one target."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from motet.artifact.contracts import TargetContract, add_contract
from motet.artifact.kernel_schedules import add_schedules
from motet.artifact.schema import KernelInfo, Schedule, Variant
from motet.compiler.build.generic_work import GenericWork, generic_work
from motet.compiler.build.partitioning import Kernels
from motet.compiler.codegen.backend import Backend, NoCode, Objects, UnloadableCode, all_of, launched, places_of
from motet.compiler.codegen.backends import backend_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import Program
from motet.compiler.ir.source_names import names_of_call
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.kernel import Kernel, structure
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.layout import callee, choose_orders, is_renaming, order_temporaries
from motet.compiler.kernels.verify import checked
from motet.compiler.passes.fuse.outline_kernels import KIND
from motet.compiler.scheduling.arrangement import ArrangeOptions
from motet.compiler.scheduling.concurrency import FILLING, SMALL, SMALL_ON_GPU
from motet.compiler.scheduling.contracts import contracts_of
from motet.compiler.scheduling.schedule import RENAMING, Compiled, ParameterStore, schedule_function
from motet.compiler.targets.families import families
from motet.compiler.targets.family import Target
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.candidates import Candidates, make_candidates
from motet.compiler.tuning.given import scheduled_kernels
from motet.compiler.tuning.kernels import DEFAULT, Choice


@dataclass(frozen=True)
class VariantOptions:
    """Arenas have at most `memory_limit` bytes, if given. `candidates` requests several schedules to choose from;
    `choice` selects forms of kernels."""

    memory_limit: int | None = None
    candidates: bool = False
    choice: Choice = DEFAULT


PLAIN = VariantOptions()


@dataclass
class Output:
    """Data shared by the variants of an artifact: the parameters in use, the members, the unit of each object, and, by
    target, the candidate schedules."""

    store: ParameterStore
    members: dict[str, bytes] = field(default_factory=dict[str, bytes])
    made: Objects = field(default_factory=Objects)
    candidates: dict[str, Candidates] = field(default_factory=dict[str, Candidates])


def build_variant(
    functions: list[ir.Operation], kernels: Kernels, target: Target, jobs: int, output: Output,
    options: VariantOptions = PLAIN, meanwhile: Callable[[], None] | None = None,
) -> Variant:
    """Build code and schedules of `functions` for one target, and add them to `output`. Units equal to those of the
    target's base share its objects. `meanwhile` is called while other processes compile, when all uses of parameters
    are known."""
    scheduling = ArrangeOptions(
        options.memory_limit, families()[target.family].streams, _filling(target),
        small=SMALL_ON_GPU if isinstance(target, GpuTarget) else SMALL,
    )
    backend = backend_of(target, options.choice)
    drafted = compile_kernels(functions, kernels, backend)
    begun = backend.begin(drafted, jobs)
    shapes = {symbol_name(function): (function, kernels.shapes_of(function)) for function in functions}

    def scheduled(compiled: Mapping[str, Compiled]) -> dict[str, Schedule]:
        return {
            name: schedule_function(*known, compiled, output.store, scheduling) for name, known in shapes.items()
        }

    draft = scheduled(drafted) if begun is not None else {}
    if begun is not None and meanwhile is not None:
        meanwhile()
    try:
        compiled, paths = backend.assemble(drafted, jobs, output.members, output.made, begun)
    except UnloadableCode as refusal:
        raise _unloadable(refusal, drafted, kernels) from None
    # Usually the expected forms were chosen, and launches are those of the draft.
    expected = all(entry.code.phases == drafted[name].code.phases for name, entry in compiled.items())
    schedules = draft if begun is not None and expected else scheduled(compiled)
    kernel_contracts = contracts_of(compiled, kernels.functions)
    add_contract(output.members, TargetContract(
        target.family, target.name, target.triple, list(target.requires), paths, kernel_contracts,
    ))
    infos = _kernel_infos(kernels, compiled, functions)
    codes = {name: entry.code for name, entry in compiled.items()}
    about = {info.name: info.source for info in infos}
    add_schedules(output.members, scheduled_kernels(codes, target, about))
    found: Candidates = {}
    if options.candidates:
        for name, known in shapes.items():
            make = functools.partial(schedule_function, *known, compiled, output.store)
            found[name] = make_candidates(make, scheduling)
    output.candidates[target.name] = found
    return Variant(
        family=target.family, target=target.name, triple=target.triple, features=list(target.requires), objects=paths,
        schedules=schedules, kernels=infos,
    )


def _filling(target: Target) -> int:
    """The minimum number of tasks of a command that leaves no room for concurrent commands."""
    return max(FILLING, target.processors) if isinstance(target, GpuTarget) else FILLING


def _unloadable(refusal: UnloadableCode, compiled: Mapping[str, Compiled], kernels: Kernels) -> NoCode:
    functions = [
        kernels.functions[name] for name, entry in compiled.items()
        if any(phase.symbol in refusal.symbols for phase in entry.code.phases)
    ]
    location = source_location(functions[0]) if functions else None
    return NoCode(refusal.message, location, frozenset[str]().union(*map(places_of, functions)))


def compile_kernels(functions: list[ir.Operation], kernels: Kernels, backend: Backend) -> dict[str, Compiled]:
    """Code for every kernel, by the class that supports it or by the generic path."""
    laid_out, codes = generate_all(functions, kernels, backend)
    called = {callee(e.operation) for f in functions for e in f.regions[0].blocks[0].operations if _is_call(e)}
    found: dict[str, Compiled] = {}
    unread: dict[str, Compiled] = {}  # by the text of their functions
    refusals: list[NoCode] = []
    for name in kernels.functions:
        if name in called:
            code = codes[name]
            try:
                found[name] = (
                    _generic(name, kernels, backend, unread) if code is None else launched(laid_out[name], code)
                )
            except NoCode as refusal:
                refusals.append(refusal)
    if refusals:
        raise all_of(refusals)
    return found


def _is_call(entry: ir.Operation) -> bool:
    return entry.operation.name == "func.call"


def kernel_text(program: Program, kernels: Kernels, target: Target, stage: str, choice: Choice) -> str:
    """A partitioned program's kernels as text for `--emit` at stage `llvm` or `assembly`."""
    backend = backend_of(target, choice)
    return backend.text(compile_kernels(public_functions(program.module), kernels, backend), stage)


def generate_all(
    functions: list[ir.Operation], kernels: Kernels, backend: Backend
) -> tuple[dict[str, Kernel], dict[str, KernelCode | None]]:
    """Kernels with their data layouts, and code for those that some class supports.

    If no class supports a kernel with the layouts chosen for it, its data become row-major, and layouts are chosen
    again.
    """
    row_major_only: frozenset[str] = frozenset()
    made: dict[tuple[Kernel, str], KernelCode | NoCode | None] = {}
    named = {name for name, _ in backend.choice.schedules.kernels}  # kernels that do not share code
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
        refusals: list[NoCode] = []
        for name, kernel in laid_out.items():
            key = structure(kernel), name if name in named else ""
            if key not in made:
                made[key] = _generated(kernel, backend)
            code = made[key]
            if isinstance(code, NoCode):
                refusals.append(NoCode(code.message, code.location, places_of(kernels.functions[name]), code.reason))
                continue
            codes[name] = code
            moved = any(value.order != tuple(range(value.rank)) for value in kernel.values)
            if codes[name] is None and moved:
                refused.add(name)
        if refusals:
            raise all_of(refusals)
        if not refused:
            return laid_out, {name: codes.get(name) for name in kernels.functions}
        row_major_only |= refused


def _generated(kernel: Kernel, backend: Backend) -> KernelCode | NoCode | None:
    if is_renaming(kernel):
        return KernelCode(RENAMING, "", ())
    try:
        return backend.generate(kernel)
    except NoCode as refusal:
        return refusal


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


def _generic(name: str, kernels: Kernels, backend: Backend, known: dict[str, Compiled]) -> Compiled:
    """Code for a kernel that no class supports: that of an equal one in `known`, if there is one. Checks name the
    operators that they are of, so that kernels with checks do not share code."""
    function = kernels.functions[name]
    text = function.get_asm(use_local_scope=True).replace(f"@{name}(", "@(", 1)
    if text not in known:
        made = backend.generic(function, name, kernels.reasons.get(name, ""))
        if made.code.checks:
            return made
        known[text] = made
    return known[text]


def names_of_kernels(functions: Sequence[ir.Operation]) -> dict[str, list[str]]:
    """The names in the source of what each kernel that `functions` call computes, those of each call once."""
    names: dict[str, dict[str, None]] = {}
    for entry in (e.operation for f in functions for e in f.regions[0].blocks[0].operations if _is_call(e)):
        if said := names_of_call(entry):
            names.setdefault(callee(entry), {})[said] = None
    return {name: [*said] for name, said in names.items()}


def _kernel_infos(
    kernels: Kernels, compiled: Mapping[str, Compiled], functions: Sequence[ir.Operation]
) -> list[KernelInfo]:
    names = names_of_kernels(functions)
    infos: list[KernelInfo] = []
    for name, entry in compiled.items():
        function = kernels.functions[name]
        source = kernels.reasons.get(name, "") or ir.StringAttr(function.attributes[KIND]).value
        work = generic_work(function) if entry.code.kind == "generic" else GenericWork(0, "")
        infos.append(KernelInfo(
            name=name, kind=entry.code.kind, flops=entry.code.flops, bytes=entry.code.bytes, source=source,
            steps=work.steps, place=work.place, names=names.get(name, []),
        ))
    return infos
