"""Reads StableHLO's interpreter tests, and its test data exported from JAX, as programs and expected results.

The folder of StableHLO's repository is MOTET_STABLEHLO, or a clone in build/stablehlo. A function's checks become its
results; the constants of the checks are read here, not by Motet. Functions that run programs on several devices by the
reference interpreter's own dialect are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from conformance.results import Unavailable, Wrong

REPOSITORY = "https://github.com/openxla/stablehlo"
ROOT = Path(__file__).resolve().parent.parent

_TYPES = {
    "i1": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    **{name: getattr(ml_dtypes, kind) for name, kind in {
        "i2": "int2", "ui2": "uint2", "i4": "int4", "ui4": "uint4",
        "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
        "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
        "f8E4M3": "float8_e4m3", "f8E3M4": "float8_e3m4", "f8E8M0FNU": "float8_e8m0fnu", "f4E2M1FN": "float4_e2m1fn",
        "f6E2M3FN": "float6_e2m3fn", "f6E3M2FN": "float6_e3m2fn"}.items()},
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """An expected result, to be matched exactly or approximately."""

    want: np.ndarray
    nearly: bool
    tolerance: float = 1e-4  # the reference's default


@dataclass(frozen=True)
class Case:
    name: str
    text: str  # StableHLO, with one public function @main without arguments
    checks: tuple[Check, ...]
    skipped: str = ""


# -- attributes ------------------------------------------------------------------------------------


def balanced(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    opening, depth, quoted = "<([{", 0, False
    for at in range(start, len(text)):
        if text[at] == '"':
            quoted = not quoted
        elif not quoted and text[at] in opening:
            depth += 1
        elif not quoted and text[at] in ">)]}" and text[at - 1 : at + 1] != "->":
            depth -= 1
            if depth == 0:
                return at + 1
    raise ValueError("a bracket does not close")


def tensor(literal: str, kind: str) -> np.ndarray:
    """The array denoted by `dense<literal> : kind`."""
    *sizes, element = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", kind.replace(" ", "")).groups()  # type: ignore[union-attr]
    shape = [int(size) for size in "".join(sizes).split("x") if size]
    dtype = np.dtype(_TYPES[element])
    if literal.strip().startswith('"0x'):
        return np.frombuffer(bytes.fromhex(literal.strip()[3:-1]), dtype).reshape(shape)
    tokens = re.findall(r"[^\s,\[\]()]+", literal)
    values = [_number(token, dtype) for token in tokens]
    if dtype.kind == "c":  # built from parts, which preserves infinities
        values = [complex(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
    with np.errstate(all="ignore"):
        wide = {"c": np.complex128, "b": np.bool_, "i": dtype, "u": dtype}.get(dtype.kind, np.float64)
        array = np.array(values, wide).astype(dtype) if values else np.zeros(0, dtype)
    if element == "f8E8M0FNU":  # it has no zero; LLVM reads its smallest number
        array = np.where(np.array(values) == 0, np.zeros(1, np.uint8).view(dtype), array)
    return np.broadcast_to(array.reshape(()), shape) if array.size == 1 else array.reshape(shape)


def _number(token: str, dtype: np.dtype) -> object:
    if token in ("true", "false"):
        return token == "true"
    real = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    if token.startswith("0x") and real.kind not in "iub":
        bits = np.array(int(token, 16), f"u{real.itemsize}")
        return float(bits.view(real))
    if real.kind in "iu" or real.name.startswith(("int", "uint")):
        return int(token, 0)
    return float(token)


# -- cases -----------------------------------------------------------------------------------------


def interpreted(folder: Path) -> Iterator[Case]:
    """One case for each function of the interpreter's tests."""
    for path in sorted((folder / "stablehlo/tests/interpret").glob("**/*.mlir")):
        text = re.sub(r"^\s*//(?! -----).*$", "", path.read_text(), flags=re.M)
        seen: dict[str, int] = {}
        for part in _functions(text):
            names = re.findall(r"func\.func\s+(?:public\s+|private\s+)?@([\w.]+)", part)
            base = f"{path.stem}/{'main' if 'main' in names else names[-1]}"
            seen[base] = seen.get(base, 0) + 1
            yield _interpreted_case(base + (f"#{seen[base]}" if seen[base] > 1 else ""), part)


def _functions(text: str) -> Iterator[str]:
    """The parts of a file with checks, also if no separator line divides them."""
    for part in re.split(r"^// -----.*$", text, flags=re.M):
        checked = [piece for piece in re.split(r"^(?=func\.func)", part, flags=re.M) if "check.expect" in piece]
        yield from (checked if len(checked) > 1 else [part] if checked else [])


def _interpreted_case(name: str, text: str) -> Case:
    if "interpreter." in text or "check.expect_serialized_eq" in text:
        return Case(name, "", (), "needs the reference interpreter's own dialect")
    if "check.expect_close" in text:
        return Case(name, "", (), "compares two computed values")
    values: list[tuple[str, str]] = []
    checks: list[Check] = []
    while found := re.search(r"check\.expect_(almost_eq_const|eq_const|almost_eq|eq)\s*", text):
        if not found[1].endswith("_const"):
            return Case(name, "", (), "compares two computed values")
        value, start = re.compile(r"\(?(%[\w#]+)\)?,?\s*").match(text, found.end()), 0  # type: ignore[union-attr]
        assert value is not None
        start = value.end()
        if text[start] in "<{":
            start = balanced(text, start)
        dense = text.index("dense<", value.end()) + 5
        end = balanced(text, dense)
        kind = re.compile(r"[\s}>]*:\s*\(?").match(text, end)
        assert kind is not None
        after = balanced(text, text.index("<", kind.end()))
        want = tensor(text[dense + 1 : end - 1], text[kind.end() : after])
        values.append((value[1], text[kind.end() : after]))
        given = re.compile(r"\s*{tolerance = ([\d.e-]+) : f64}").match(text, after)
        after = given.end() if given else after
        checks.append(Check(want, found[1] == "almost_eq_const", float(given[1]) if given else 1e-4))
        text = text[: found.start()] + text[after:]
    kinds = ", ".join(kind for _, kind in values)
    function, last = _checked_function(text)
    head = re.sub(r"@[\w.]+\s*\(\)(\s*->\s*[^{]*)?\s*{", f"@main() -> ({kinds}) {{", text[function:last], count=1)
    end = re.compile(r"(func\.)?return[^\n]*").match(text, last)
    assert end is not None
    returns = f"return {', '.join(value for value, _ in values)} : {kinds}"
    body = re.sub(r"^func\.func\s+(public\s+)?", "func.func ", head) + returns + text[end.end() :]
    others = re.sub(r"func\.func\s+(public\s+)?(?=@)", "func.func private ", text[:function])
    return Case(name, others + body, tuple(checks))


def _checked_function(text: str) -> tuple[int, int]:
    """The positions of the last function without arguments and of its return."""
    function = [found.start() for found in re.finditer(r"func\.func\s+(public\s+)?@[\w.]+\s*\(\)", text)][-1]
    return function, [found.start() for found in re.finditer(r"(?<![\w.])(func\.)?return(?!\w)", text)][-1]


def exported(folder: Path) -> Iterator[Case]:
    """One case for each file exported from JAX."""
    for path in sorted((folder / "stablehlo/testdata").glob("*.mlir")):
        yield _exported_case(path.stem, re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M))


def _exported_case(name: str, text: str) -> Case:
    main = text.index("func.func public @main")
    expected = re.search(r"^\s*(%\w+)(?::\d+)? = call @expected\(\)", text, flags=re.M)
    call = r"custom_call @check\.expect_(\w+)\((%[\w#]+), (%[\w#]+)\)[^\n]*: \(([^\n]*)\) -> "
    checked = re.findall(call, text[main:])
    if expected is None or not checked or "?" in text:
        return Case(name, "", (), "no constants to compare with")
    wanted = _expected(text)
    which = [(value, other) if other.split("#")[0] == expected[1] else (other, value) for _, value, other, _ in checked]
    if any(("#" not in other and len(wanted) > 1) or other.split("#")[0] != expected[1] for _, other in which):
        return Case(name, "", (), "compares two computed values")
    checks = [
        Check(wanted[int(other.partition("#")[2] or 0)], how != "eq")
        for (how, *_), (_, other) in zip(checked, which, strict=True)
    ]
    kinds = [types[: balanced(types, types.index("<"))] for *_, types in checked]
    text = re.sub(r"^\s*stablehlo\.custom_call @check\.[^\n]*\n", "", text, flags=re.M)
    text = re.sub(r"^\s*%\w+(:\d+)? = call @expected\(\)[^\n]*\n", "", text, flags=re.M)
    head, body = text[: text.index("func.func public @main")], text[text.index("func.func public @main") :]
    body = f"func.func public @main() -> ({', '.join(kinds)}) {{\n" + body.split("{\n", 1)[1]
    returns = f"    return {', '.join(value for value, _ in which)} : {', '.join(kinds)}\n"
    body = re.sub(r"^    return [^\n]*\n", lambda _: returns, body, count=1, flags=re.M)
    return Case(name, head + body, tuple(checks))


def _expected(text: str) -> list[np.ndarray]:
    body = text[text.index("func.func private @expected()") :]
    body = body[: re.search(r"^    return [^\n]*\n", body, flags=re.M).end()]  # type: ignore[union-attr]
    named: dict[str, np.ndarray] = {}
    for found in re.finditer(r"(%\w+) = stablehlo\.constant dense<", body):
        end = balanced(body, found.end() - 1)
        kind = body[end:].split("\n", 1)[0].strip(" :")
        named[found[1]] = tensor(body[found.end() : end - 1], kind)
    returned = re.search(r"^    return ([^:]*):", body, flags=re.M)
    assert returned is not None
    return [named[value.strip()] for value in returned[1].split(",")]


# -- running ---------------------------------------------------------------------------------------


def difference(got: np.ndarray, check: Check) -> str:
    """A description of the difference; empty if there is none."""
    want = check.want
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.dtype.kind in "biu" or got.dtype.name.startswith(("int", "uint")):
        bad = got != want
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            precision = float(ml_dtypes.finfo(got.real.dtype).eps)
            close = 32 * precision * np.maximum(1, np.abs(want.astype(wide))) + check.tolerance
            near = np.abs(got.astype(wide) - want.astype(wide)) <= (close if check.nearly else 0)
            bad = ~(near | _same(got, want))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} elements differ; at {list(place)} {got[place]}, expected {want[place]}"


def _same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    if got.dtype.kind == "c":
        return _same(got.real, want.real) & _same(got.imag, want.imag)
    return (got == want) | (np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64)))


def run_case(case: Case) -> None:
    """Compiles and runs a case that is not skipped."""
    import motet

    artifact = motet.compile(case.text.encode(), format="stablehlo", devices="host{cpu=x86-64-v3}", cache=False)
    results = motet.load(artifact, threads=1)()
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    for number, (got, check) in enumerate(zip(results, case.checks, strict=True)):
        if found := difference(np.asarray(got), check):
            raise Wrong(f"result {number}: {found}")


# -- the suite -------------------------------------------------------------------------------------


def repository() -> Path:
    """The folder of StableHLO's repository. Raises Unavailable if there is none."""
    if folder := os.environ.get("MOTET_STABLEHLO"):
        if not (Path(folder) / "stablehlo/tests/interpret").is_dir():
            raise Unavailable(f"{folder}: no stablehlo/tests/interpret in it; expected a checkout of {REPOSITORY}")
        return Path(folder)
    clone = ROOT / "build/stablehlo"
    if not (clone / "stablehlo/tests/interpret").is_dir():
        clone.parent.mkdir(exist_ok=True)
        command = ["git", "clone", "--quiet", "--depth", "1", REPOSITORY, str(clone)]
        if subprocess.run(command).returncode:
            raise Unavailable(f"cannot clone {REPOSITORY}; set MOTET_STABLEHLO to a checkout of it")
    return clone
