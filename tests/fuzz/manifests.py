"""Artifacts whose manifests were changed at random, with right sums: each is refused, or runs as the one it was.

    python -m tests.fuzz.manifests --count 100000 --seed 1        the parts of it, over all programs
    python -m tests.fuzz.manifests --only fragment --seed 4711 --count 1 --show

The members are those that the compiler wrote. A change that a part of the manifest for people takes, or none, gives the
same numbers; every other one is an error of Motet's. Children run the artifacts, and say which one before they do, so
that a crash or a hang is one of a seed. With `--forge` the seal fits the changed manifest, too, as if somebody had
compiled it: what then runs may be another program, which is counted apart, but must never crash.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import io
import json
import mmap
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import motet
from motet.artifact.contracts import CONTRACTS, seal_of
from motet.artifact.schema import Manifest
from motet.errors import MotetError

Tree = dict[str, Any]
MANIFEST = "manifest.json"
_PATIENCE = 30.0  # seconds for one artifact
_MEMORY = 16 << 30  # bytes that a child may address
_STATE = struct.Struct("<6q")  # of a child: the seed it is at, and how many were what
OUTCOMES = ("refused", "same", "other", "faults")

# -- programs ------------------------------------------------------------------------------------

_FRAGMENT = """
func.func @main(%a: tensor<33x64xf32>, %b: tensor<64x48xf32>, %c: tensor<33x48xf32>)
    -> (tensor<33x48xf32>, tensor<33xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<33x64xf32>, tensor<64x48xf32>)
    outs(%c : tensor<33x48xf32>) -> tensor<33x48xf32>
  %e = tensor.empty() : tensor<33x48xf32>
  %1 = linalg.exp ins(%0 : tensor<33x48xf32>) outs(%e : tensor<33x48xf32>) -> tensor<33x48xf32>
  %zero = arith.constant 0.0 : f32
  %r = tensor.empty() : tensor<33xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<33xf32>) -> tensor<33xf32>
  %2 = linalg.reduce ins(%1 : tensor<33x48xf32>) outs(%f : tensor<33xf32>) dimensions = [1]
    (%in: f32, %acc: f32) { %s = arith.addf %in, %acc : f32 linalg.yield %s : f32 }
  %3 = linalg.broadcast ins(%2 : tensor<33xf32>) outs(%e : tensor<33x48xf32>) dimensions = [1]
  %4 = linalg.div ins(%1, %3 : tensor<33x48xf32>, tensor<33x48xf32>) outs(%e : tensor<33x48xf32>) -> tensor<33x48xf32>
  return %4, %2 : tensor<33x48xf32>, tensor<33xf32>
}"""


def _weights(*shape: int, seed: int = 0) -> str:
    values = np.random.default_rng(len(shape) + shape[0] + seed).standard_normal(shape).astype(np.float32)
    return f'dense<"0x{values.tobytes().hex().upper()}"> : tensor<{"x".join(map(str, shape))}xf32>'


def _mlp() -> str:
    text = "func.func @main(%x: tensor<?x24xf32>) -> tensor<?x24xf32> {\n  %c0 = arith.constant 0 : index\n"
    text += "  %n = tensor.dim %x, %c0 : tensor<?x24xf32>\n  %z = arith.constant 0.0 : f32\n"
    value = "%x"
    for layer in range(3):
        text += f"""
  %w{layer} = arith.constant {_weights(24, 24, seed=layer)}
  %e{layer} = tensor.empty(%n) : tensor<?x24xf32>
  %f{layer} = linalg.fill ins(%z : f32) outs(%e{layer} : tensor<?x24xf32>) -> tensor<?x24xf32>
  %m{layer} = linalg.matmul ins({value}, %w{layer} : tensor<?x24xf32>, tensor<24x24xf32>)
    outs(%f{layer} : tensor<?x24xf32>) -> tensor<?x24xf32>
  %t{layer} = linalg.tanh ins(%m{layer} : tensor<?x24xf32>) outs(%e{layer} : tensor<?x24xf32>) -> tensor<?x24xf32>
  %s{layer} = linalg.add ins(%t{layer}, {value} : tensor<?x24xf32>, tensor<?x24xf32>)
    outs(%e{layer} : tensor<?x24xf32>) -> tensor<?x24xf32>"""
        value = f"%s{layer}"
    return text + f"\n  return {value} : tensor<?x24xf32>\n}}"


def _conv() -> str:
    return f"""
func.func @main(%x: tensor<1x3x18x18xf32>) -> tensor<1x8x7x7xf32> {{
  %z = arith.constant 0.0 : f32
  %w0 = arith.constant {_weights(8, 3, 3, 3)}
  %w1 = arith.constant {_weights(8, 8, 3, 3)}
  %e0 = tensor.empty() : tensor<1x8x16x16xf32>
  %f0 = linalg.fill ins(%z : f32) outs(%e0 : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  %0 = linalg.conv_2d_nchw_fchw ins(%x, %w0 : tensor<1x3x18x18xf32>, tensor<8x3x3x3xf32>)
    outs(%f0 : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  %1 = linalg.tanh ins(%0 : tensor<1x8x16x16xf32>) outs(%e0 : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  %e1 = tensor.empty() : tensor<1x8x14x14xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<1x8x14x14xf32>) -> tensor<1x8x14x14xf32>
  %2 = linalg.conv_2d_nchw_fchw ins(%1, %w1 : tensor<1x8x16x16xf32>, tensor<8x8x3x3xf32>)
    outs(%f1 : tensor<1x8x14x14xf32>) -> tensor<1x8x14x14xf32>
  %e2 = tensor.empty() : tensor<1x8x7x7xf32>
  %l = arith.constant -3.0e38 : f32
  %f2 = linalg.fill ins(%l : f32) outs(%e2 : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %k = tensor.empty() : tensor<2x2xf32>
  %3 = linalg.pooling_nchw_max {{strides = dense<2> : tensor<2xi64>}}
    ins(%2, %k : tensor<1x8x14x14xf32>, tensor<2x2xf32>)
    outs(%f2 : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  return %3 : tensor<1x8x7x7xf32>
}}"""


_PLACED = """
module {
  "motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
  "motet.device"() {sym_name = "acc", alternatives = ["null", "@cpu"]} : () -> ()
  func.func @main(%x: tensor<17x32xf32> {motet.affinity = "cpu"}) -> (tensor<17x19xf32> {motet.affinity = "cpu"}) {
    %w = arith.constant WEIGHTS
    %zero = arith.constant 0.0 : f32
    %shape = tensor.empty() : tensor<17x32xf32>
    %small = linalg.abs ins(%x : tensor<17x32xf32>) outs(%shape : tensor<17x32xf32>) -> tensor<17x32xf32>
    %empty = tensor.empty() : tensor<17x19xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<17x19xf32>) -> tensor<17x19xf32>
    %product = linalg.matmul {motet.affinity = "acc"}
      ins(%small, %w : tensor<17x32xf32>, tensor<32x19xf32>) outs(%init : tensor<17x19xf32>) -> tensor<17x19xf32>
    %root = linalg.tanh ins(%product : tensor<17x19xf32>) outs(%empty : tensor<17x19xf32>) -> tensor<17x19xf32>
    return %root : tensor<17x19xf32>
  }
}"""


@dataclass(frozen=True)
class Case:
    """A program, and the shapes of its inputs in the calls that are made of it."""

    text: Callable[[], str]
    calls: tuple[tuple[tuple[int, ...], ...], ...]

    def inputs(self) -> list[list[np.ndarray]]:
        rng = np.random.default_rng(5)
        return [[rng.standard_normal(shape).astype(np.float32) * 0.1 for shape in call] for call in self.calls]


CASES = {
    "fragment": Case(lambda: _FRAGMENT, (((33, 64), (64, 48), (33, 48)),) * 3),
    "mlp": Case(_mlp, (((5, 24),), ((131, 24),), ((5, 24),), ((5, 24),), ((0, 24),))),
    "conv": Case(_conv, (((1, 3, 18, 18),),) * 3),
    "placed": Case(lambda: _PLACED.replace("WEIGHTS", _weights(32, 19)), (((17, 32),),) * 2),
}


def compiled(case: str) -> bytes:
    """The artifact of a program."""
    return bytes(motet.compile(CASES[case].text()).data)


# -- changes -------------------------------------------------------------------------------------


def mutate(manifest_json: Tree, rng: random.Random) -> Tree:
    """`manifest_json` with one to three changes: numbers, elements of lists, names, expressions, types, fields."""
    tree = copy.deepcopy(manifest_json)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        kinds = (_number, _number, _element, _element, _string, _type, _field, _graft, _swap, _reindex)
        for _ in range(20):
            if rng.choice(kinds)(tree, places, rng):
                break
    return tree


Place = tuple[Any, Any]  # a list or an object, and where in it


def _places(tree: Any) -> Iterator[Place]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _pick(places: list[Place], rng: random.Random, fits: Callable[[Any], bool]) -> Place | None:
    found = [(holder, key) for holder, key in places if fits(holder[key])]
    return rng.choice(found) if found else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    if (place := _pick(places, rng, _is_number)) is None:
        return False
    holder, key = place
    value = holder[key]
    holder[key] = rng.choice((
        value + 1, value - 1, value * 2, value // 2, 0, -value, -1, 64, 2**31, 2**63 - 1, 2**63, 2**40, 2**61,
    ))
    return True


def _element(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    """An element of a list is left out, doubled, or changes places with another."""
    if (place := _pick(places, rng, lambda value: isinstance(value, list) and bool(value))) is None:
        return False
    values = place[0][place[1]]
    at, other = rng.randrange(len(values)), rng.randrange(len(values))
    kind = rng.randrange(4)
    if kind == 0:
        del values[at]
    elif kind == 1:
        values.insert(other, copy.deepcopy(values[at]))
    elif kind == 2:
        values[at], values[other] = values[other], values[at]
    else:
        values[at] = copy.deepcopy(values[other])
    return True


def _string(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    place, other = (_pick(places, rng, lambda value: isinstance(value, str)) for _ in range(2))
    if place is None or other is None:
        return False
    place[0][place[1]] = other[0][other[1]]
    return True


def _type(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    holder, key = rng.choice(places)
    holder[key] = rng.choice((None, True, 1, 1.5, "", "n", [], {}, [[]], ["+", 1, 2], "\x00", "é" * 40, 1e300))
    return True


def _field(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    """A field is left out, or there is one more."""
    found = [(holder, key) for holder, key in places if isinstance(holder, dict)]
    holder, key = rng.choice(found)
    if rng.random() < 0.8:
        del holder[key]
    else:
        holder[rng.choice([name for _, name in found])] = copy.deepcopy(holder[key])
    return True


def _graft(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    """What stands under a name in one place stands there as in another: expressions, buffers, whole schedules."""
    holder, key = rng.choice(places)
    found = [(other, own) for other, own in places if own == key or (isinstance(own, int) and isinstance(key, int))]
    other, own = rng.choice(found)
    holder[key] = copy.deepcopy(other[own])
    return True


def _swap(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    """Two values of one name change places."""
    holder, key = rng.choice(places)
    other, own = rng.choice([place for place in places if place[1] == key])
    first, second = copy.deepcopy(holder[key]), copy.deepcopy(other[own])
    holder[key], other[own] = second, first
    return True


def _reindex(tree: Tree, places: list[Place], rng: random.Random) -> bool:
    """A number of a list of commands' buffers, waits or operands is another one that may be there."""
    names = ("buffers", "after", "waits", "operands", "results", "inputs", "sizes", "shape")
    lists = [holder[key] for holder, key in places if key in names and isinstance(holder[key], list)]
    lists = [each for each in lists if each and all(_is_number(value) for value in each)]
    if not lists:
        return False
    own = rng.choice(lists)
    own[rng.randrange(len(own))] = rng.randrange(12)
    return True


# -- artifacts -----------------------------------------------------------------------------------


class Forger:
    """Writes an artifact again, with another manifest and right sums."""

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self._members = {name: archive.read(name) for name in archive.namelist()}
        self.manifest: Tree = json.loads(self._members[MANIFEST])

    def forged(self, tree: Tree, sealed: bool) -> bytes:
        members = dict(self._members)
        if sealed:
            self._seal(tree, members)
        members[MANIFEST] = json.dumps(tree).encode()
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return file.getvalue()

    def _seal(self, tree: Tree, members: dict[str, bytes]) -> None:
        with contextlib.suppress(Exception):  # no manifest at all any more: it is as well unsealed
            manifest = msgspec.json.decode(json.dumps(tree), type=Manifest)
            contracts = json.loads(members[CONTRACTS]) | {"seal": seal_of(manifest)}
            members[CONTRACTS] = json.dumps(contracts).encode()
            own = tree["members"][CONTRACTS]
            own["sha256"], own["size"] = hashlib.sha256(members[CONTRACTS]).hexdigest(), len(members[CONTRACTS])


# -- children ------------------------------------------------------------------------------------


def _results(data: bytes, calls: list[list[np.ndarray]]) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    with motet.load(data, threads=2) as session:
        for arrays in calls:
            results = session(*arrays)
            for each in results if isinstance(results, tuple) else (results,):
                found.append((f"{each.dtype}{each.shape}", each.tobytes()))
    return found


def attempt(forger: Forger, case: str, expected: list[tuple[str, bytes]], seed: int, sealed: bool) -> tuple[str, str]:
    """The outcome of one seed, and what there is to say."""
    data = forger.forged(mutate(forger.manifest, random.Random(seed)), sealed)
    try:
        found = _results(data, CASES[case].inputs())
    except MotetError as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:  # which no one expects
        return "faults", f"{type(error).__name__}: {error}"
    return ("same", "") if found == expected else ("other", "")


def child(path: Path, case: str, sealed: bool, state: mmap.mmap, last: int) -> None:
    """Runs the seeds from the one in `state` to `last`, noting there which it is at and what came of the others."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = path.read_bytes()
    forger, expected = Forger(data), _results(data, CASES[case].inputs())
    seed, *counts = _STATE.unpack(state[: _STATE.size])
    while seed < last:
        state[: _STATE.size] = _STATE.pack(seed, *counts)
        outcome, words = attempt(forger, case, expected, seed, sealed)
        counts[OUTCOMES.index(outcome)] += 1
        counts[4] += 1
        if outcome in ("other", "faults"):
            print(f"{outcome}: {case} seed {seed} {words}", flush=True)
        seed += 1
    state[: _STATE.size] = _STATE.pack(seed, *counts)


@dataclass
class Counts:
    """How many artifacts were what; `stopped` are seeds with how the process ended."""

    refused: int = 0
    same: int = 0
    other: int = 0
    faults: int = 0
    stopped: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        return self.refused + self.same + self.other + self.faults + len(self.stopped)


def run(count: int, seed: int, artifact: bytes, case: str = "fragment", sealed: bool = False) -> Counts:
    """What becomes of `count` changes of `artifact`, that of the program `case`, with the seeds from `seed` on."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder, "artifact.motet"), Path(folder, "state")
        path.write_bytes(artifact)
        file.write_bytes(_STATE.pack(seed, 0, 0, 0, 0, 0))
        while (at := _STATE.unpack(file.read_bytes())[0]) < seed + count:
            how = _watch(path, case, sealed, file, seed + count, counts)
            found, refused, same, other, faults, _ = _STATE.unpack(file.read_bytes())
            if how:
                counts.stopped.append(f"{case} seed {found}: {how}")
                file.write_bytes(_STATE.pack(found + 1, refused, same, other, faults, 0))
            assert how or found > at, "the child did nothing"
        _, counts.refused, counts.same, counts.other, counts.faults, _ = _STATE.unpack(file.read_bytes())
    return counts


def _watch(path: Path, case: str, sealed: bool, file: Path, last: int, counts: Counts) -> str:
    """Runs a child to its end; how it came about where something went wrong."""
    command = [sys.executable, "-m", "tests.fuzz.manifests", "--child", str(path), "--only", case]
    command += ["--state", str(file), "--last", str(last), *(["--forge"] if sealed else [])]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        before, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            if (now := _STATE.unpack(file.read_bytes())[0]) != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                process.kill()
                process.wait()
                return f"hangs for {_PATIENCE:g} s"
        said.seek(0)
        words = said.read().strip().splitlines()
    counts.lines += [line for line in words if line.startswith(("other", "faults"))]
    return f"ends with {process.returncode}: {words[-1] if words else ''}" if process.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run artifacts with changed manifests.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CASES, default=None)
    parser.add_argument("--forge", action="store_true", help="let the seal fit the changed manifest")
    parser.add_argument("--show", action="store_true", help="print what each seed comes to")
    for name in ("--child", "--state"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--last", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        with given.state.open("r+b") as file, mmap.mmap(file.fileno(), _STATE.size) as state:
            child(given.child, given.only, given.forge, state, given.last)
        return 0
    if given.show:
        return _show(given.only or "fragment", given.seed, given.count, given.forge)
    cases = [given.only] if given.only else list(CASES)
    bad = 0
    for case in cases:
        counts = run(-(-given.count // len(cases)), given.seed, compiled(case), case, given.forge)
        print(f"{case}: {counts.total} from seed {given.seed}: refused {counts.refused}, same {counts.same}, "
              f"other {counts.other}, faults {counts.faults}, crashes and hangs {len(counts.stopped)}", flush=True)
        print("\n".join([*counts.stopped, *counts.lines[:40]]), end="\n" if counts.stopped or counts.lines else "")
        bad += len(counts.stopped) + counts.faults + (0 if given.forge else counts.other)
    return 1 if bad else 0


def _show(case: str, seed: int, count: int, sealed: bool) -> int:
    data = compiled(case)
    forger, expected = Forger(data), _results(data, CASES[case].inputs())
    for number in range(seed, seed + count):
        print(number, *attempt(forger, case, expected, number, sealed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
