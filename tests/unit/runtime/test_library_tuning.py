"""Libraries among what is measured: taken where faster than every form, with the fastest form behind them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pytest
from tests.unit.runtime.test_tuning import FAMILY, TARGET, Code, ModelDevice, Recorded, artifact, tune

from motet.artifact.candidates import INDEX, encode_index, pruned, read_index
from motet.artifact.library import Algorithm, LibraryCall, LibraryOperand, read_call
from motet.artifact.reader import Artifact
from motet.artifact.tunings import Tunings, parse_tunings
from motet.artifact.writer import write_artifact
from motet.errors import ArtifactError
from motet.runtime.device import Work

CALL = LibraryCall(
    1, "cublaslt", 8, 8, 8, LibraryOperand(
        0, "f32", 8, 1
    ), LibraryOperand(0, "f32", 8, 1), LibraryOperand(1, "f32", 8, 1), "f32"
)
ALGORITHMS = [Algorithm(130100, f"{number:02x}" * 64, 0) for number in range(3)]


@dataclass
class Noted(Code):
    notes: Sequence[str] = ()


@dataclass
class LibraryDevice(ModelDevice):
    """Runs an algorithm in the place of `k`, in what `seconds` says of `algorithm N`; those in `refused` it notes."""

    def algorithms(self, call: LibraryCall, most: int) -> list[Algorithm]:
        assert call == CALL
        return ALGORITHMS[:most]

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Code:
        call = json.loads(objects[1]).get("library")
        if call is None:
            return super().load(objects, names)
        number = [each.code for each in ALGORITHMS].index(read_call(call, 2).algorithm.code)  # type: ignore[union-attr]
        name = f"algorithm {number}"
        return Noted(["k", name], ["it refuses"] if name in self.refused else [])

    def record(self, executable: Code, work: Sequence[Work], externals: int, scratch: int) -> Recorded:
        if isinstance(executable, Noted):
            work = [replace(each, kernel=executable.kernels[1]) for each in work]
        return super().record(executable, work, externals, scratch)


def offering(forms: int = 3) -> Artifact:
    made = artifact(forms)
    (kernel,) = read_index(made)
    members = {name: bytes(made.member(name)) for name in made.manifest.members}
    members[INDEX] = encode_index([msgspec.structs.replace(kernel, library=CALL)])
    return write_artifact(made.manifest, members, {})


SECONDS = {"k": 5e-6, "k.1": 3e-6, "k.2": 4e-6, "algorithm 0": 2.5e-6, "algorithm 1": 2e-6, "algorithm 2": 9e-6}


def test_the_fastest_algorithm_is_taken_with_the_fastest_form_behind_it() -> None:
    (verdict,) = tune(offering(), LibraryDevice(SECONDS))
    assert verdict.taken == 1 and verdict.library is not None
    assert verdict.library.algorithm == ALGORITHMS[1] and verdict.library.name == "cublasLt 13.1.0 #2"
    tuning = verdict.tuning
    assert tuning.form == "form 1" and tuning.library == ALGORITHMS[1]
    assert {name: round(time) for name, time in tuning.microseconds.items()}["cublasLt 13.1.0 #2"] == 2
    again = parse_tunings(Tunings((tuning,)).encode(), "here").kernels
    assert again == (tuning,)
    chosen = write_artifact(*pruned(offering(), {(FAMILY, TARGET, "k"): verdict.chosen}))
    described = json.loads(bytes(chosen.member("k.json")))
    assert described["warps"] == 1 and read_call(described["library"], 2).algorithm == ALGORITHMS[1]
    assert bytes(chosen.member("k.bin")) == b"code 1"


@pytest.mark.parametrize("changes", [
    {"wrong": frozenset({"algorithm 0", "algorithm 1"})}, {"refused": frozenset({"algorithm 0", "algorithm 1"})},
])
def test_algorithms_that_differ_or_are_refused_are_not_taken(changes: dict[str, frozenset[str]]) -> None:
    (verdict,) = tune(offering(), LibraryDevice(SECONDS, **changes))
    assert verdict.library is None and [each.number for each in verdict.algorithms] == [2]
    chosen = write_artifact(*pruned(offering(), {(FAMILY, TARGET, "k"): verdict.chosen}))
    assert "library" not in json.loads(bytes(chosen.member("k.json")))


def test_a_library_that_is_hardly_faster_is_not_taken() -> None:
    (verdict,) = tune(offering(), LibraryDevice(SECONDS | {"algorithm 0": 3e-6, "algorithm 1": 2.98e-6}))
    assert verdict.library is None and verdict.tuning.library is None


def test_devices_without_a_library_measure_forms_alone() -> None:
    (verdict,) = tune(offering(), ModelDevice(SECONDS))
    assert verdict.taken == 1 and not verdict.algorithms and verdict.library is None


def test_one_form_and_a_library_are_a_choice_too() -> None:
    (verdict,) = tune(offering(1), LibraryDevice(SECONDS))
    assert verdict.taken == 0 and verdict.library is not None


def test_a_damaged_offer_is_one_error() -> None:
    made = offering()
    (kernel,) = read_index(made)
    members = {name: bytes(made.member(name)) for name in made.manifest.members}
    wrong = msgspec.structs.replace(CALL, rows=-3)
    members[INDEX] = encode_index([msgspec.structs.replace(kernel, library=wrong)])
    with pytest.raises(ArtifactError, match="kernel k: library: rows: -3; expected 1 to"):
        read_index(write_artifact(made.manifest, members, {}))
