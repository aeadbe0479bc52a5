"""Runs StableHLO's own interpreter tests, and its test data as JAX exports them, through Motet.

    python conformance/stablehlo.py interpret build/stablehlo.tsv             # all functions of stablehlo/tests/interpret
    python conformance/stablehlo.py testdata build/testdata.tsv --every 10    # every tenth file of stablehlo/testdata

A line of the result is: name, ok | wrong | refused | crash | skipped, reason, seconds; cases that the file has already
are not run again. The folder of StableHLO's repository is `--suite`, or MOTET_STABLEHLO, or a clone in
build/stablehlo. A function's checks become its results; the constants of the checks are read here, not by Motet.
Functions that run programs on several devices through the reference interpreter's own dialect are skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

REPOSITORY = "https://github.com/openxla/stablehlo"
ROOT = Path(__file__).resolve().parent.parent
SECONDS = 180  # for one case

_TYPES = {
    "i1": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}, **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    **{name: getattr(ml_dtypes, kind) for name, kind in {
        "i2": "int2", "ui2": "uint2", "i4": "int4", "ui4": "uint4", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
        "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
        "f8E4M3": "float8_e4m3", "f8E3M4": "float8_e3m4", "f8E8M0FNU": "float8_e8m0fnu", "f4E2M1FN": "float4_e2m1fn",
        "f6E2M3FN": "float6_e2m3fn", "f6E3M2FN": "float6_e3m2fn"}.items()},
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """What a result has to be; equal, or nearly so."""

    want: np.ndarray
    nearly: bool


@dataclass(frozen=True)
class Case:
    name: str
    text: str  # StableHLO, with one public function @main without arguments
    checks: tuple[Check, ...]
    skipped: str = ""


# -- attributes ------------------------------------------------------------------------------------


def balanced(text: str, start: int) -> int:
    """Where the bracket that opens at `start` has closed."""
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
    """The array that `dense<literal> : kind` is."""
    *sizes, element = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", kind.replace(" ", "")).groups()  # type: ignore[union-attr]
    shape = [int(size) for size in "".join(sizes).split("x") if size]
    dtype = np.dtype(_TYPES[element])
    if literal.strip().startswith('"0x'):
        return np.frombuffer(bytes.fromhex(literal.strip()[3:-1]), dtype).reshape(shape)
    tokens = re.findall(r"[^\s,\[\]()]+", literal)
    values = [_number(token, dtype) for token in tokens]
    if dtype.kind == "c":  # made of parts, which keeps infinities as they are
        values = [complex(*pair) for pair in zip(values[::2], values[1::2], strict=True)]
    with np.errstate(all="ignore"):
        wide = {"c": np.complex128, "b": np.bool_, "i": dtype, "u": dtype}.get(dtype.kind, np.float64)
        array = np.array(values, wide).astype(dtype) if values else np.zeros(0, dtype)
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
    """The parts of a file with checks; also those that no line separates."""
    for part in re.split(r"^// -----.*$", text, flags=re.M):
        checked = [piece for piece in re.split(r"^(?=func\.func)", part, flags=re.M) if "check.expect" in piece]
        yield from (checked if len(checked) > 1 else [part] if checked else [])


def _interpreted_case(name: str, text: str) -> Case:
    if "interpreter." in text or "check.expect_serialized_eq" in text:
        return Case(name, "", (), "needs the reference interpreter's own dialect")
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
        checks.append(Check(tensor(text[dense + 1 : end - 1], text[kind.end() : after]), found[1] == "almost_eq_const"))
        values.append((value[1], text[kind.end() : after]))
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
    """Where the last function without arguments begins, and where its return does."""
    function = [found.start() for found in re.finditer(r"func\.func\s+(public\s+)?@[\w.]+\s*\(\)", text)][-1]
    return function, [found.start() for found in re.finditer(r"(?<![\w.])(func\.)?return(?!\w)", text)][-1]


def exported(folder: Path) -> Iterator[Case]:
    """One case for each file of what JAX exported."""
    for path in sorted((folder / "stablehlo/testdata").glob("*.mlir")):
        yield _exported_case(path.stem, re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M))


def _exported_case(name: str, text: str) -> Case:
    main = text.index("func.func public @main")
    expected = re.search(r"^\s*(%\w+)(?::\d+)? = call @expected\(\)", text, flags=re.M)
    checked = re.findall(r"custom_call @check\.expect_(\w+)\((%[\w#]+), (%[\w#]+)\)[^\n]*: \(([^\n]*)\) -> ", text[main:])
    if expected is None or not checked or "?" in text:
        return Case(name, "", (), "no constants to compare with")
    wanted = _expected(text)
    which = [(value, other) if other.split("#")[0] == expected[1] else (other, value) for _, value, other, _ in checked]
    if any("#" not in other and len(wanted) > 1 or other.split("#")[0] != expected[1] for _, other in which):
        return Case(name, "", (), "compares two computed values")
    checks = [Check(wanted[int(other.partition("#")[2] or 0)], how[0] != "eq") for how, (_, other) in zip(checked, which)]
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
    """In what they differ, or nothing."""
    want = check.want
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.dtype.kind in "biu" or got.dtype.name.startswith(("int", "uint")):
        bad = got != want
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            precision = float(ml_dtypes.finfo(got.real.dtype).eps)
            close = 32 * precision * np.maximum(1, np.abs(want.astype(wide))) + 1e-4  # the reference's own tolerance
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


def run_case(case: Case) -> tuple[str, str]:
    import motet

    if case.skipped:
        return "skipped", case.skipped
    try:
        artifact = motet.compile(case.text.encode(), format="stablehlo", devices="host{cpu=x86-64-v3}", cache=False)
        results = motet.load(artifact, threads=1)()
    except motet.WorkerCrash as error:
        return "crash", str(error)
    except motet.MotetError as error:
        return "refused", str(error)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    for number, (got, check) in enumerate(zip(results, case.checks, strict=True)):
        if found := difference(np.asarray(got), check):
            return "wrong", f"result {number}: {found}"
    return "ok", ""


def run_all(cases: Callable[[], Iterator[Case]], results: Path, command: list[str]) -> None:
    """Runs the cases that `results` lacks in child processes; one that ends early crashed with the case begun last."""
    begun = results.with_suffix(".begun")
    names = [case.name for case in cases()]
    while missing := [name for name in names if name not in written(results)]:
        begun.write_text(missing[0])
        child = subprocess.Popen([sys.executable, *command, "--child"])
        reason = wait(child, begun)
        if begun.exists() and (name := begun.read_text()) and name not in written(results):
            write(results, name, "crash", reason, 0.0)


def wait(child: subprocess.Popen[bytes], begun: Path) -> str:
    """Ends a child that works on one case for too long; returns why it ended."""
    while child.poll() is None:
        time.sleep(0.2)
        if time.time() - begun.stat().st_mtime > SECONDS:
            child.kill()
            child.wait()
            return f"takes more than {SECONDS} s"
    return f"the process ended with code {child.returncode}"


def run_child(cases: Iterator[Case], results: Path) -> None:
    there = written(results)
    for case in cases:
        if case.name in there:
            continue
        results.with_suffix(".begun").write_text(case.name)
        begin = time.perf_counter()
        try:
            verdict, reason = run_case(case)
        except Exception as error:  # an error that Motet does not name is a defect of Motet
            verdict, reason = "crash", f"{type(error).__name__}: {error}"
        write(results, case.name, verdict, reason, time.perf_counter() - begin)


def written(results: Path) -> dict[str, str]:
    """What each case of a file of results came to."""
    if not results.exists():
        return {}
    return dict(line.split("\t")[:2] for line in results.read_text().splitlines())  # type: ignore[misc]


def write(results: Path, name: str, verdict: str, reason: str, seconds: float) -> None:
    reason = " ".join(reason.split())
    with results.open("a") as file:
        file.write(f"{name}\t{verdict}\t{reason}\t{seconds:.2f}\n")


def summary(results: Path) -> str:
    counts: dict[str, int] = {}
    for verdict in written(results).values():
        counts[verdict] = counts.get(verdict, 0) + 1
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))


# -- the suite -------------------------------------------------------------------------------------


def suite(given: str | None) -> Path:
    """The folder of StableHLO's repository; ends the process with one line where there is none."""
    if folder := given or os.environ.get("MOTET_STABLEHLO"):
        if not (Path(folder) / "stablehlo/tests/interpret").is_dir():
            sys.exit(f"error: {folder}: no stablehlo/tests/interpret in it; expected a checkout of {REPOSITORY}")
        return Path(folder)
    clone = ROOT / "build/stablehlo"
    if not (clone / "stablehlo/tests/interpret").is_dir():
        clone.parent.mkdir(exist_ok=True)
        command = ["git", "clone", "--quiet", "--depth", "1", REPOSITORY, str(clone)]
        if subprocess.run(command).returncode:
            sys.exit(f"error: cannot clone {REPOSITORY}; pass --suite or set MOTET_STABLEHLO to a checkout of it")
    return clone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["interpret", "testdata"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--suite", help="the folder of StableHLO's repository")
    parser.add_argument("--only", default="", help="a regular expression that names match")
    parser.add_argument("--every", type=int, default=1, help="runs every n-th of these")
    parser.add_argument("--show", action="store_true", help="prints the programs instead of running them")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = suite(given.suite)
    source = interpreted if given.part == "interpret" else exported

    def cases() -> Iterator[Case]:
        named = (case for case in source(folder) if re.search(given.only, case.name))
        return (case for number, case in enumerate(named) if number % given.every == 0)

    if given.show:
        for case in cases():
            print(f"// {case.name} {case.skipped}\n{case.text}\n// -----")
    elif given.child:
        run_child(cases(), given.results)
    else:
        given.results.parent.mkdir(parents=True, exist_ok=True)
        run_all(cases, given.results, sys.argv)
        print(f"{given.part}: {summary(given.results)}")


if __name__ == "__main__":
    main()
