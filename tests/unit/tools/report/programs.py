"""Programs written by hand, as artifacts hold them."""

from __future__ import annotations

from motet.artifact.schema import (
    SCHEMA_VERSION,
    Alternative,
    Command,
    Expr,
    KernelInfo,
    LogicalDevice,
    Manifest,
    Plan,
    Schedule,
    ScheduleBuffer,
    Signature,
    Step,
    Symbol,
    TensorSpec,
    Variant,
)
from motet.compiler.targets.rates import Rates
from motet.tools.report.binding import ReportedDevice

# Numbers that make times easy to see: a launch costs nothing, a FLOP and a byte a microsecond each.
RATES = Rates(
    contraction=1e6, convolution=1e6, elementwise=1e6, reduction=1e6, generic=1e6, memory=1e6, launch=0.0, submit=0.0,
    upload=1e6, download=1e6,
)


def tensor(name: str, *shape: Expr, dtype: str = "f32") -> TensorSpec:
    return TensorSpec(name, list(shape), dtype)


def variant(family: str, schedules: dict[str, Schedule], kernels: list[KernelInfo]) -> Variant:
    return Variant(family, f"{family}-target", f"{family}-triple", [], [], schedules, kernels)


def manifest(functions: list[Signature], variants: list[Variant], **others: object) -> Manifest:
    return Manifest(SCHEMA_VERSION, "a test", functions, variants, [], {}, **others)  # type: ignore[arg-type]


def bound(family: str, code: Variant, name: str = "", threads: int = 1) -> ReportedDevice:
    return ReportedDevice(name, family, family, code, RATES, threads=threads)


def diamond(extent: Expr = 4) -> tuple[Manifest, Signature]:
    """x → a → (b, c) → d → y, each on tensors of `extent` elements; c has two phases."""
    size: Expr = ["*", extent, 4] if isinstance(extent, str) else 4 * int(str(extent))
    symbols = [Symbol(extent, 0, 0)] if isinstance(extent, str) else []
    signature = Signature("main", [tensor("x", extent)], [tensor("y", extent)], symbols)
    buffers = [
        ScheduleBuffer("input", size), ScheduleBuffer("arena", size, 0, 0, [extent], "f32"),
        ScheduleBuffer("arena", size, 0, 64 if not symbols else ["*", extent, 4], [extent], "f32"),
        ScheduleBuffer(
            "arena", size, 0, 128 if not symbols else ["*", extent, 8], [extent], "f32"
        ), ScheduleBuffer("result", size),
    ]
    commands = [
        Command("dispatch", [0, 1], "main_a", 1), Command("dispatch", [1, 2], "main_b", 1, after=[0]),
        Command("dispatch", [1, 3], "main_c_first", 1, after=[0]),
        Command("dispatch", [1, 3], "main_c_second", 2, after=[0, 2]),
        Command("dispatch", [2, 3, 4], "main_d", 1, after=[1, 3]),
    ]
    kernels = [
        KernelInfo("main_a", "loops", 10, 5), KernelInfo("main_b", "rows", 20, 5),
        KernelInfo("main_c", "contraction", 40, 5), KernelInfo("main_d", "generic", 5, 30),
    ]
    arena: Expr = 192 if not symbols else ["*", extent, 12]
    code = variant("host", {"main": Schedule(buffers, commands, arena)}, kernels)
    return manifest([signature], [code]), signature


def relay() -> tuple[Manifest, Signature]:
    """x → p on @a → transfer → q on @b → transfer → y on @a; 25 floats all the way."""
    def region(name: str) -> tuple[Signature, Schedule]:
        schedule = Schedule(
            [
                ScheduleBuffer("input", 100), ScheduleBuffer("result", 100)
            ], [Command("dispatch", [0, 1], f"{name}_kernel", 1)]
        )
        return Signature(name, [tensor("in", 25)], [tensor("out", 25)]), schedule

    (p, p_schedule), (q, q_schedule) = region("p"), region("q")
    signature = Signature("main", [tensor("x", 25)], [tensor("y", 25)])
    plan = Plan(5, [0], [4], [0], [0], [
        Step("run", 0, [0], [1], "p"), Step("transfer", 1, [1], [2]), Step("run", 1, [2], [3], "q"),
        Step("transfer", 0, [3], [4]),
    ])
    kernels = [KernelInfo("p_kernel", "loops", 300, 10), KernelInfo("q_kernel", "contraction", 1000, 10)]
    variants = [
        variant("host", {"p": p_schedule, "q": q_schedule}, kernels), variant("null", {"q": q_schedule}, kernels),
    ]
    devices = [LogicalDevice("a", [Alternative("host")]), LogicalDevice("b", [Alternative("null")])]
    return manifest([signature], variants, devices=devices, plans={"main": plan}, regions={"p": p, "q": q}), signature
