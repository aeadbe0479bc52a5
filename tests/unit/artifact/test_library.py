"""Records of a library's calls: what is written is read again, damage is one error, older artifacts have none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from motet.artifact.library import (
    Algorithm,
    LibraryCall,
    LibraryOperand,
    UnknownLibrary,
    read_call,
    show_version,
    with_library,
)
from motet.artifact.tunings import Tuning, Tunings, parse_tunings

CALL = LibraryCall(
    1, "cublaslt", 5, 7, 3, LibraryOperand(0, "bf16", 3, 1, 15), LibraryOperand(
        1, "bf16", 1, 3, 21, 8
    ), LibraryOperand(3, "f32", 7, 1, 35),
    "f32", 2, bias=LibraryOperand(2, "f32", 0, 1), activation="relu", algorithm=Algorithm(130100, "0a" * 64, 4096),
)


def plain(call: LibraryCall) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(call))


def test_what_is_written_is_read_again() -> None:
    for call in (CALL, msgspec.structs.replace(CALL, algorithm=None, bias=None, activation="", batch=1)):
        description = with_library(b'{"kernel": "k", "buffers": 4}', call)
        content = json.loads(description)
        assert content["kernel"] == "k" and read_call(content["library"], 4) == call
        assert json.loads(with_library(description, None)) == {"kernel": "k", "buffers": 4}


def test_bytes_that_an_operand_takes() -> None:
    assert CALL.left.end(5, 3, 2) == 2 * 30
    assert CALL.right.end(3, 7, 2) == 2 * (8 + 42)
    assert LibraryOperand(0, "f8E4M3FN", 10, 1).end(4, 6, 1) == 36
    assert CALL.bias is not None and CALL.bias.end(1, 7, 2) == 28


def test_records_of_other_versions_are_told_apart_from_damaged_ones() -> None:
    with pytest.raises(UnknownLibrary, match="a call of cublaslt, record version 7; this runtime knows"):
        read_call(plain(CALL) | {"version": 7, "what": "ever"}, 4)
    with pytest.raises(UnknownLibrary, match="rocblas"):
        read_call(plain(CALL) | {"name": "rocblas"}, 4)


@pytest.mark.parametrize("path", ["rows", "left", "left.buffer", "left.dtype", "result.row", "precision",
                                  "algorithm.code", "algorithm.workspace", "version", "activation", "bias.column"])
@pytest.mark.parametrize("value", [None, -1, 1 << 70, "x", [], {}, 2.5])
def test_damage_is_one_error(path: str, value: Any) -> None:
    content = plain(CALL)
    *outer, name = path.split(".")
    place = content
    for each in outer:
        place = place[each]
    place[name] = value
    with pytest.raises(ValueError):
        read_call(content, 4)


def test_what_lies_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="bias: buffer 2; there are 2"):
        read_call(plain(msgspec.structs.replace(CALL, result=LibraryOperand(1, "f32", 7, 1, 35))), 2)
    with pytest.raises(ValueError, match="result: 7 elements from column to column"):
        read_call(plain(msgspec.structs.replace(CALL, result=LibraryOperand(3, "f32", 1, 7))), 4)


def test_versions_as_people_write_them() -> None:
    assert [show_version(each) for each in (130100, 120903, 131002, 11502)] == ["13.1.0", "12.9.3", "13.10.2", "11.5.2"]


def test_tunings_keep_what_the_library_was_measured_with() -> None:
    tunings = Tunings((Tuning("k", "cuda:sm_90a", "a GPU", "tile", "", {"tile": 2.0}, CALL.algorithm),))
    assert parse_tunings(tunings.encode(), "here") == tunings
    older = b'{"motet_tunings": 1, "kernels": [{"kernel": "k", "target": "t", "device": "d", "form": "tile"}]}'
    (found,) = parse_tunings(older, "here").kernels
    assert found.library is None and b"library" not in Tunings((found,)).encode()
