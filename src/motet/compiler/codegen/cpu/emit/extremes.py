"""Maximum and minimum, which are NaN if an operand is, for CPUs whose instruction selection lacks them.

    declare double @llvm.maximum.f64(…)    →    define internal double @motet.maximum.f64(…) by compare and select

LLVM aborts on `llvm.maximum` and `llvm.minimum` of doubles for every Arm Cortex-M, and of single halves for those that
have instructions for them. Of two zeros, the maximum is the positive one.
"""

from __future__ import annotations

import re

from motet.compiler.targets.cpu import CpuTarget

_NAME = re.compile(r'@"?llvm\.(maximum|minimum)\.(f16|f64|v\d+f64)"?(?=\()')
_DECLARATION = re.compile(r'^declare .*@"?llvm\.(?:maximum|minimum)\.(?:f16|f64|v\d+f64)"?\(.*\n?', re.MULTILINE)

_DEFINITION = """
define internal {kind} @motet.{op}.{suffix}({kind} %x, {kind} %y) nounwind {{
  %better = fcmp {predicate} {kind} %x, %y
  %best = select {test} %better, {kind} %x, {kind} %y
  %x_bits = bitcast {kind} %x to {bits}
  %y_bits = bitcast {kind} %y to {bits}
  %both = {combine} {bits} %x_bits, %y_bits
  %zero = bitcast {bits} %both to {kind}
  %equal = fcmp oeq {kind} %x, %y
  %number = select {test} %equal, {kind} %zero, {kind} %best
  %strange = fcmp uno {kind} %x, %y
  %nan = fadd {kind} %x, %y
  %result = select {test} %strange, {kind} %nan, {kind} %number
  ret {kind} %result
}}
"""


def with_extremes(llvm: str, target: CpuTarget) -> str:
    """The LLVM IR `llvm` with definitions of the maxima and minima that `target` has no code for."""
    if not target.triple.startswith("thumb"):
        return llvm
    wanted = sorted(set(_NAME.findall(llvm)))
    if not wanted:
        return llvm
    text = _NAME.sub(r"@motet.\1.\2", _DECLARATION.sub("", llvm))
    return text + "".join(_definition(op, suffix) for op, suffix in wanted)


def _definition(op: str, suffix: str) -> str:
    lanes, _, width = suffix.removeprefix("v").partition("f")
    kind, bits, test = {"16": "half", "64": "double"}[width], f"i{width}", "i1"
    if lanes:
        kind, bits, test = (f"<{lanes} x {each}>" for each in (kind, bits, test))
    predicate, combine = ("ogt", "and") if op == "maximum" else ("olt", "or")
    return _DEFINITION.format(
        kind=kind, bits=bits, test=test, op=op, suffix=suffix, predicate=predicate, combine=combine
    )
