"""The back end for GPUs: kernels as Triton programs, compiled ahead of time without a GPU. A `LaunchCompiler` compiles
launches that are kept as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from motet.artifact.candidates import INDEX, Tunable, encode_index
from motet.compiler.codegen.backend import NoCode, Objects, launched, places_of, whole_operands
from motet.compiler.codegen.gpu.accesses import UnsupportedOnGpu
from motet.compiler.codegen.gpu.ext import recurrences as recurrence_plans
from motet.compiler.codegen.gpu.gemm import multi_plan
from motet.compiler.codegen.gpu.written_launches import LaunchCompiler
from motet.compiler.codegen.triton.attention.attention import pays
from motet.compiler.codegen.triton.compile.objects import (
    Begun,
    begin_programs,
    chosen,
    compile_programs,
    members_of,
    objects_of,
    tunable_of,
)
from motet.compiler.codegen.triton.compile.worker import Made
from motet.compiler.codegen.triton.ext import recurrences, scans, scatters, sorts
from motet.compiler.codegen.triton.schedules import check, choices_of, schedule_of, settled, with_schedule
from motet.compiler.codegen.triton.select import generate
from motet.compiler.codegen.triton.text.program import TritonCode, TritonProgram, ordered
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.launches import LAUNCH
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.attention.matching import match
from motet.compiler.kernels.kernel import Kernel, key_of
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.linalg_ext import is_whole, read_whole
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.reader.computed import read_computed
from motet.compiler.kernels.reader.reading import Unreadable, dtype_of
from motet.compiler.kernels.reader.written_schedules import refuse_scheduled
from motet.compiler.kernels.recurrence import Recurrence, read_recurrence
from motet.compiler.kernels.schedule import LaunchesSchedule
from motet.compiler.schedule_text.written import launches_written_for, refuse_illegal
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.given import schedule_for, target_name
from motet.compiler.tuning.kernels import DEFAULT, Choice
from motet.decoding import decode_json
from motet.errors import CompileError, Location

_WHOLES = {"scan": scans.emit, "sort": sorts.emit, "scatter": scatters.emit}


@dataclass(frozen=True)
class TritonBackend:
    target: GpuTarget
    launches: LaunchCompiler
    choice: Choice = DEFAULT

    @property
    def fuses_attention(self) -> bool:
        return True

    def attention_pays(self, kernel: Kernel) -> bool:
        found = match(kernel)
        return found is not None and pays(found, self.target)

    def multi_gemm_pays(self, products: Sequence[ProductShape]) -> bool:
        return multi_plan.pays(products, self.target)

    def recurrence_pays(self, found: Recurrence) -> bool:
        """Find obstacles by writing the program as text."""
        try:
            planned = recurrence_plans.plan(found, self.target)
            recurrences.emit(planned, found.kernel.name, (), ())
        except UnsupportedOnGpu:
            return False
        return recurrence_plans.pays(planned, self.target)

    def improves_on_base(self, kernel: Kernel) -> bool:
        return True

    @property
    def complete(self) -> bool:
        return False

    def obstacle(self, function: ir.Operation, kernel: Kernel | None, reason: str) -> str | None:
        """Find obstacles by writing the programs as text, without compiling them."""
        try:
            if kernel is None:
                self.generic(function, symbol_name(function), reason)
            else:
                self.generate(kernel)
        except NoCode as refusal:
            return refusal.reason
        except CompileError as error:  # a schedule in the program that has no meaning here
            return error.message
        return None

    def generate(self, kernel: Kernel) -> KernelCode:
        try:
            code = generate(kernel, self.target)
        except UnsupportedOnGpu as reason:
            self._fail(kernel.name, str(reason))
        self._check_doubles(kernel.name, code)
        key = key_of(kernel, self.target.precision)
        given, origin = schedule_for(
            self.choice.schedules, kernel, key, (self.target,), lambda schedule: check(schedule, code)
        )
        if given is None and (given := launches_written_for(kernel, self.target.family, choices_of(code))) is not None:
            refuse_illegal(kernel, check(given, code), target_name(self.target))
        taken = with_schedule(code, given) if isinstance(given, LaunchesSchedule) else code
        return replace(taken, key=key, schedule=schedule_of(code.programs, taken.programs), origin=origin)

    def generic(self, function: ir.Operation, name: str, reason: str) -> Compiled:
        """Compile launches kept as written, operations on whole tensors, and kernels that can be read with gathers.
        Raises CompileError for other kernels."""
        if LAUNCH in function.attributes:
            return self.launches.emit(function, name)
        if is_whole(function):
            refuse_scheduled(function, "the operation is computed as a whole")
            return self._whole(function, name)
        if (loop := read_recurrence(function)) is not None:
            refuse_scheduled(function, "a loop is computed as a whole")
            return self._recurrence(function, loop, name)
        try:
            kernel = read_computed(function)
        except Unreadable as unreadable:
            refuse_scheduled(function, str(unreadable) or reason)
            text = _explained(str(unreadable) or reason)
            self._fail(name, text, source_location(function), places_of(function))
        return launched(kernel, self.generate(kernel))

    def _recurrence(self, function: ir.Operation, found: Recurrence, name: str) -> Compiled:
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        arguments, results = ([dtype_of(each) for each in types] for types in (kind.inputs, kind.results))
        try:
            planned = recurrence_plans.plan(found, self.target)
            code = recurrences.emit(planned, name, arguments, results)
        except UnsupportedOnGpu as reason:
            self._fail(name, str(reason), places=places_of(function))
        self._check_doubles(name, code)
        packings = {found.arguments[value]: packing for value, packing in planned.packings.items()}
        made = whole_operands(function, code, ())
        return replace(made, packings=tuple(packings.get(number) for number in range(len(arguments))))

    def _whole(self, function: ir.Operation, name: str) -> Compiled:
        try:
            whole = read_whole(function)
            code = _WHOLES[whole.kind](whole, self.target)
            self._check_doubles(name, code)
            return launched(whole.kernel, code)
        except (Unreadable, UnsupportedOnGpu) as reason:
            self._fail(name, str(reason), places=places_of(function))

    def _check_doubles(self, name: str, code: KernelCode) -> None:
        """Raises NoCode for f64 on a device that has none."""
        if self.target.xpu is None or self.target.xpu.fp64 or not isinstance(code, TritonCode):
            return
        for program in code.programs:
            if "fp64" in program.buffers or all("tl.float64" in form.source for form in program.forms):
                self._fail(name, f"it computes in f64, which {self.target.name} lacks")

    def _fail(
        self, name: str, reason: str, place: Location | None = None, places: frozenset[str] = frozenset()
    ) -> NoReturn:
        family = self.target.family
        raise NoCode(
            f"kernel {name}: no code can be made for {family} devices: {reason}; place its operations on another "
            "device, such as the host", place, places, reason,
        )

    def begin(self, compiled: Mapping[str, Compiled], jobs: int) -> Begun | None:
        programs = list(self._programs(compiled).values())
        return begin_programs(
            programs, self.target, jobs, self.choice.most, self.choice.keeps
        ) if programs else None

    def assemble(
        self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes], made: Objects,
        begun: object | None = None,
    ) -> tuple[dict[str, Compiled], list[str]]:
        programs = self._programs(compiled)
        waited = begun if isinstance(begun, Begun) else self.begin(compiled, jobs)
        forms = waited.result() if waited is not None else []
        paths: list[str] = []
        tunable: list[Tunable] = []
        for program, made_forms in zip(programs.values(), forms, strict=True):
            found = [
                members_of(program, each, self.target, f"{program.symbol}.{number}" if number else "")
                for number, each in enumerate(made_forms)
            ]
            for each in found:
                members |= each
            paths += objects_of(found[0])
            if len(found) > 1 or (self.choice.most > 1 and program.library is not None):
                tunable.append(tunable_of(program, made_forms, [list(each) for each in found], self.target))
        paths += self.launches.compile(compiled, jobs, members)
        if tunable:
            earlier = decode_json(members.get(INDEX, b"[]"), list[Tunable])
            members[INDEX] = encode_index([*earlier, *tunable])
        built = {symbol: made_forms[0] for symbol, made_forms in zip(programs, forms, strict=True)}
        settled = {
            name: replace(entry, code=_settled(entry.code, programs, built)) for name, entry in compiled.items()
        }
        return settled, paths

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        programs = list(self._programs(compiled).values())
        written = self.launches.text(compiled, stage)
        if stage == "llvm":
            return "\n".join([*(program.forms[0].source for program in programs), written])
        return "\n".join([*(first.assembly for first, *_ in compile_programs(programs, self.target, 1)), written])

    def _programs(self, compiled: Mapping[str, Compiled]) -> dict[str, TritonProgram]:
        """Programs by symbol; kernels of equal structure share one. A program of no other's company does not begin
        early: the instructions for it would take up to a microsecond."""
        programs = {
            program.symbol: ordered(program, self.choice, self.target)
            for entry in compiled.values()
            if isinstance(entry.code, TritonCode)
            for program in entry.code.programs
        }
        if len(compiled) > 1 or len(programs) > 1:
            return programs
        return {symbol: _by_itself(program) for symbol, program in programs.items()}


def _by_itself(program: TritonProgram) -> TritonProgram:
    return replace(program, forms=tuple(replace(form, early=form.blocks > 1) for form in program.forms))


def _explained(reason: str) -> str:
    """`reason`, with advice if the code is a loop or was made from one."""
    if reason == "operation tensor.insert":
        return f"{reason}: it writes a single element, as loops do whose turns depend on one another"
    if not reason.startswith("operation scf.") or "scf.if" in reason:
        return reason
    return f"{reason}: it is no operation on tensors, and its turns may depend on one another, or it holds launches"


def _settled(code: KernelCode, ordered: Mapping[str, TritonProgram], built: Mapping[str, Made]) -> KernelCode:
    """`code` with the forms that were chosen, whose grids may differ from those of the first forms."""
    if not isinstance(code, TritonCode):
        return code
    programs = tuple(chosen(ordered[program.symbol], built[program.symbol]) for program in code.programs)
    return replace(
        code, programs=programs, phases=tuple(Phase(program.symbol, program.forms[0].tasks) for program in programs),
        schedule=settled(code.schedule, code.programs, programs),
    )
