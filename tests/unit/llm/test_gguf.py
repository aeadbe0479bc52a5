"""GGUF files: blocks against the package's own reader, models against their floats, damaged files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import motet.llm
from motet.errors import OptionError
from motet.llm.blocks import BlockMatrix
from motet.llm.gguf_file import _unpermuted, _weight
from motet.llm.source import open_source

gguf: Any = pytest.importorskip("gguf", reason="needs gguf: pip install 'motet[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'motet[llm]'")
EXAMPLES = Path(__file__).parents[3] / "examples"


def make_gguf() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_gguf", EXAMPLES / "make_gguf.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Stored:
    """A tensor as the package's reader gives it."""

    def __init__(self, kind: str, data: np.ndarray, shape: list[int]) -> None:
        self.name, self.tensor_type, self.data = "x", gguf.GGMLQuantizationType[kind], data
        self.shape = np.array(shape[::-1])


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q4_1", "Q2_K", "Q3_K"])
def test_blocks_have_the_numbers_of_the_package(kind: str) -> None:
    random = np.random.default_rng(len(kind) + ord(kind[1]))
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = random.integers(0, 256, (6, 512 // elements, size)).astype(np.uint8)
    factors = {"Q6_K": [208], "Q3_K": [108], "Q2_K": [80, 82]}.get(kind, [0, 2] if kind[-1] in "K1" else [0])
    for at in factors:  # or random halves are NaN
        raw[:, :, at : at + 2] = random.normal(0, 1, (6, 512 // elements, 1)).astype(np.float16).view(np.uint8)
    data = raw.reshape(6, -1)
    wanted = gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
    notes: list[str] = []
    made = _weight(Path("x.gguf"), gguf, Stored(kind, data, [6, 512]), notes)
    assert isinstance(made, BlockMatrix) and made.bits == (4 if kind in ("Q4_0", "Q4_K") else 8)
    if notes:
        largest = np.abs(wanted).reshape(6, -1, 32).max(axis=2).repeat(32, axis=1)
        assert (np.abs(made.floats() - wanted) <= largest * 0.011).all()
    else:
        assert kind in ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
        np.testing.assert_allclose(made.floats(), wanted, rtol=1e-6, atol=1e-6)


def test_rows_of_llama_are_put_back() -> None:
    """The order that llama.cpp's converter gives to queries and keys of Llama."""
    rows = np.arange(3 * 8)
    permuted = rows.reshape(3, 2, 4).swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(permuted[_unpermuted(3, 8)], rows)


def test_a_file_generates_as_its_floats(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    make_gguf().write_model(file, gguf.GGMLQuantizationType.Q4_0)
    stored = motet.llm.load(file, context=64, device="host{cpu=native}")
    exact = motet.llm.load(file, context=64, weights="f32", device="host{cpu=native}")
    prompt = stored.encode("the thin ☃<|end|>")
    assert stored.tokenizer.decode(prompt) == "the thin ☃"
    assert len(prompt) == 10  # th, e, space, th, in, space, 3 bytes, end
    np.testing.assert_allclose(stored.read(prompt), exact.read(prompt), rtol=1e-4, atol=1e-4)
    assert stored.generate("Once", tokens=12).tokens == exact.generate("Once", tokens=12).tokens
    asked = stored.chat([{"role": "user", "content": "hi"}])
    assert stored.tokenizer.decode(asked) == "user: hi\nassistant:"
    assert not stored.notes


def test_a_tokenizer_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    make_gguf().write_model(file, gguf.GGMLQuantizationType.Q8_0)
    data = file.read_bytes()
    name = b"llama.vocab_size"
    at = data.index(name) + len(name) + 4  # after the type of the value
    rows = int.from_bytes(data[at : at + 4], "little")
    embeddings = data.index(b"token_embd.weight")
    shape = data.index(rows.to_bytes(8, "little"), embeddings)
    head = data.index(rows.to_bytes(8, "little"), data.index(b"output.weight"))
    changed = bytearray(data)
    changed[at : at + 4] = (rows - 5).to_bytes(4, "little")
    for place in (shape, head):
        changed[place : place + 8] = (rows - 5).to_bytes(8, "little")
    file.write_bytes(changed)
    with pytest.raises(OptionError, match=f"tokenizer has {rows} tokens; the model's vocabulary has {rows - 5}$"):
        motet.llm.load(file)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    make_gguf().write_model(file, gguf.GGMLQuantizationType.Q8_0)
    data = file.read_bytes()
    random = np.random.default_rng(5)
    cuts = [5, 23, 24, 40, 700, 5000, len(data) - 1]
    counts = [data[:8] + b"\xff" * 7 + b"\x7f" + data[16:], data[:16] + b"\xff" * 7 + b"\x7f" + data[24:]]
    for bad in (*(data[:cut] for cut in cuts), *counts):
        file.write_bytes(bad)
        with pytest.raises(OptionError, match=r"truncated or damaged|not a GGUF"):
            open_source(file)
    for _ in range(60):  # any change of the header is an error of one line, or another model
        changed = bytearray(data[:4500])
        for place in random.integers(4, 4500, 3):
            changed[place] = random.integers(0, 256)
        file.write_bytes(bytes(changed) + data[4500:])
        try:
            open_source(file)
        except OptionError as error:
            assert "\n" not in str(error)
    file.write_bytes(data.replace(b"llama", b"lhama"))
    with pytest.raises(OptionError, match="'lhama' is not known; expected one of llama, qwen2"):
        open_source(file)
