"""Passes in general: their names and options, their orders, and what an observer is told."""

from __future__ import annotations

import pytest
from tests.prepared import load_mlir

from motet.compiler.ir._mlir import ir
from motet.compiler.job import PassReports
from motet.compiler.passes import registry
from motet.compiler.passes.iree_names import ALIASES
from motet.compiler.passes.normalise.lower_transposed_conv import LowerTransposedConv
from motet.compiler.passes.pipelines import PIPELINES, Cleaned, Step, Upstream
from motet.compiler.passes.report import PassReporter
from motet.compiler.passes.running import observed, run_named, run_steps
from motet.compiler.stages import optimise
from motet.errors import CompileError, MotetError, OptionError

TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %0 = arith.addf %x, %w : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def names_in(steps: tuple[Step, ...]) -> list[str]:
    found: list[str] = []
    for step in steps:
        if isinstance(step, Cleaned):
            found += names_in(step.passes)
        elif not isinstance(step, Upstream):
            found.append(registry.name_of(step))
    return found


def test_orders_name_passes_that_there_are() -> None:
    for steps in (*PIPELINES.values(), *(alias.passes for alias in ALIASES.values())):
        assert set(names_in(steps)) <= registry.PASSES.keys()


def test_every_pass_is_in_the_file_of_its_name() -> None:
    for name, module in registry.PASSES.items():
        made = registry.make(name)
        assert made.name == name
        assert type(made).__module__ == module


def test_options_are_fields() -> None:
    assert registry.make("lower-transposed-conv") == LowerTransposedConv(phases=True)
    assert registry.make("lower-transposed-conv{phases=false}") == LowerTransposedConv(phases=False)


@pytest.mark.parametrize(("pipeline", "kind", "message"), [
    ("hoist-constants{x=1}", OptionError, "pass hoist-constants: option x: unknown; it takes no options"),
    ("lower-transposed-conv{phase=true}", OptionError, "option phase: unknown; it takes phases (true or false)"),
    ("lower-transposed-conv{phases=yes}", OptionError, "option phases=yes: expected true or false"),
    ("lower-transposed-conv{phases}", OptionError, "option phases: expected true or false"),
    ("fuse-attention{accepts=all}", OptionError, "option accepts: unknown; it takes no options"),
    ("place-by-name{layer}", OptionError, "option layer: expected PATTERN=DEVICE"),
    ("normalise{x}", OptionError, "pipeline normalise: option x: unknown; it takes no options"),
    ("hoist-constant", CompileError, "hoist-constant"),
])
def test_wrong_options_are_named(pipeline: str, kind: type[MotetError], message: str) -> None:
    with pytest.raises(kind) as caught:
        optimise(TEXT, "test.mlir", pipeline)
    assert message in str(caught.value)


def test_a_name_that_no_pass_has_is_answered_by_all_that_there_are() -> None:
    with pytest.raises(OptionError, match=r"pass drop-cast: unknown; Motet's passes: .*drop-casts"):
        registry.make("drop-cast")


def test_pipelines_run_by_name() -> None:
    text = optimise(TEXT, "test.mlir", "convert-elementwise-to-linalg,normalise,outline")
    assert "call @main_kernel_0(%arg0, %arg1)" in text


def observe(reports: PassReports) -> list[str]:
    """What is written while a program is normalised and outlined."""
    written: list[str] = []
    program = load_mlir(TEXT, "test.mlir")
    with program.module.context, ir.Location.unknown():
        reporter = PassReporter(reports, written.append)
        with observed(reporter):
            run_named("normalise", program)
            run_named("outline", program)
        reporter.finish()
        run_steps(("fold-constants",), program)  # which the observer is not told of
    return written


def test_the_program_is_printed_after_a_pass() -> None:
    after, never = observe(PassReports(after=("hoist-constants", "fuse-attention")))
    assert after.startswith("// ----- after hoist-constants -----\n")
    assert 'motet.parameter = "constant_0"' in after and "dense<" not in after
    assert never == "// ----- fuse-attention: did not run for this program -----\n"


def test_passes_that_change_the_program_are_told_from_others() -> None:
    written = observe(PassReports(changed=True))
    changed = [text.split()[3] for text in written if text.startswith("// ----- after")]
    assert "hoist-constants" in changed and "outline-kernels" in changed
    assert "// ----- drop-casts: no change -----\n" in written


def test_the_program_is_printed_after_a_pipeline() -> None:
    normalised, outlined = observe(PassReports(after=("normalise", "outline")))
    assert normalised.startswith("// ----- after normalise -----\n") and "func.call" not in normalised
    assert outlined.startswith("// ----- after outline -----\n") and "func.func private" in outlined


def test_times_of_all_stages_add_up() -> None:
    (table,) = observe(PassReports(times=True))
    lines = table.splitlines()[1:]
    assert any(line.endswith("1    hoist-constants") for line in lines)
    stages = [line for line in lines if not line[26:].startswith(" ")]
    seconds = [float(line.split()[0]) for line in stages]
    assert [line[26:] for line in stages][:2] == ["normalise", "outline"]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1], abs=1e-4 * len(seconds))
