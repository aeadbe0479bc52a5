"""Sampling, the text of tokens, and checkpoints that are not models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import motet
import motet.llm
from motet.errors import CallError, OptionError, OutOfMemoryError
from motet.llm.blocks import quantise
from motet.llm.sampling import Sampling, choose, distribution
from motet.llm.writing import TextWriter

NATIVE = "host{cpu=native}"
SIZES = {"model_type": "llama", "vocab_size": 37, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return bytes(tokens).decode(errors="replace")


def checkpoint(folder: Path) -> Path:
    """A Llama of one layer with random weights."""
    random = np.random.default_rng(0)
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens": (37, 32), "lm_head": (37, 32), "model.norm": (32,), f"{layer}.input_layernorm": (32,),
        f"{layer}.post_attention_layernorm": (32,), f"{layer}.self_attn.q_proj": (32, 32),
        f"{layer}.self_attn.k_proj": (16, 32), f"{layer}.self_attn.v_proj": (16, 32),
        f"{layer}.self_attn.o_proj": (32, 32), f"{layer}.mlp.gate_proj": (48, 32), f"{layer}.mlp.up_proj": (48, 32),
        f"{layer}.mlp.down_proj": (32, 48),
    }
    weights = {f"{name}.weight": random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SIZES))
    return folder


def written(data: bytes, *stop: str) -> list[str]:
    writer = TextWriter(Bytes(), stop)
    pieces: list[str] = []
    for byte in data:
        pieces.append(writer.add(byte))
        if writer.stopped:
            break
    return [*pieces, writer.finish()]


def test_characters_are_written_whole() -> None:
    assert written("aé€b".encode()) == ["a", "", "é", "", "", "€", "b", ""]
    assert "".join(written(b"a\xe2\x82")) == "a\ufffd"


def test_text_ends_before_a_stop_string() -> None:
    assert "".join(written(b"one END two", "END")) == "one "
    assert "".join(written(b"one EN", "END")) == "one EN"
    assert "".join(written(b"EENDS", "END", "S")) == "E"


@pytest.mark.parametrize(("sampling", "kept"), [
    (Sampling(1, top_k=2), [0, 1]), (Sampling(1, top_p=0.6), [0, 1]), (Sampling(1, top_p=0.5), [0]),
    (Sampling(1, min_p=0.5), [0, 1]), (Sampling(1), [0, 1, 2, 3]),
])
def test_filters_keep_the_most_probable(sampling: Sampling, kept: list[int]) -> None:
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    wanted = np.zeros(4)
    wanted[kept] = shares[kept] / shares[kept].sum()
    tokens, made = distribution(np.log(shares), sampling)
    np.testing.assert_allclose(np.bincount(tokens, made, 4), wanted, rtol=1e-12)


@pytest.mark.parametrize("sampling", [
    Sampling(1, top_k=7), Sampling(1, top_p=0.7), Sampling(1, top_k=40, top_p=0.9),
    Sampling(1, top_p=0.999, min_p=0.01),
    Sampling(1, top_k=999),
])
def test_filters_are_those_of_sorted_tokens(sampling: Sampling) -> None:
    """Also with many equal scores."""
    random = np.random.default_rng(4)
    for scores in (random.normal(0, 4, 500), random.integers(0, 9, 500).astype(np.float64)):
        order = sorted(range(500), key=lambda token: -scores[token])[: sampling.top_k or None]
        shares = np.exp(scores[order])
        shares /= shares.sum()
        if sampling.top_p < 1:
            count = next(count for count in range(1, 501) if shares[:count].sum() >= sampling.top_p)
            order, shares = order[:count], shares[:count]
        kept = [at for at, share in enumerate(shares) if share >= sampling.min_p * shares[0]]
        tokens, made = distribution(scores, sampling)
        assert sorted(tokens) == sorted(order[at] for at in kept)
        wanted = np.bincount([order[at] for at in kept], shares[kept] / shares[kept].sum(), 500)
        np.testing.assert_allclose(np.bincount(tokens, made, 500), wanted, rtol=1e-9)


def test_penalty_and_seed() -> None:
    logits = np.array([2.0, 1.5, -1.0], np.float32)
    assert choose(logits, [0], Sampling(repetition_penalty=2), np.random.default_rng(0)) == 1
    draws = [[choose(logits, [], Sampling(1), random) for _ in range(50)]
             for random in (np.random.default_rng(seed) for seed in (1, 1, 2))]
    assert draws[0] == draws[1] != draws[2]
    with pytest.raises(OptionError, match=r"top_p: it is 2; expected"):
        Sampling(top_p=2)


def test_unsuitable_checkpoints_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    for bad, message in ((data[:-1], "truncated or damaged"), (b"\xff" * 64, "truncated"), (b"", "truncated"),
                         (b"\x02" + bytes(7) + b"[]", "not a JSON object")):
        file.write_bytes(bad)
        with pytest.raises(OptionError, match=message):
            motet.llm.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "model_type": "other"}))
    with pytest.raises(OptionError, match=r"expected one of gemma, .* llama, mistral, "):
        motet.llm.load(tmp_path)


@pytest.mark.parametrize("settings", [
    pytest.param({}, id="whole", marks=pytest.mark.slow),
    pytest.param({"model_type": "mistral", "sliding_window": 6}, id="sliding"),
])
def test_texts_in_common_calls_are_those_alone(settings: dict[str, object], tmp_path: Path) -> None:
    """Texts of different lengths, more than the cache has room for, with seeds, and windows that slide."""
    checkpoint(tmp_path)
    prompts = [[5, 9, 30], [2], [11, 3, 8, 7, 1, 0, 4], [36, 35]]
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, **settings}))
    model = motet.llm.load(tmp_path, context=16, batch=2, chunk=4, device=NATIVE)
    sampling = Sampling(0.9, top_k=20, seed=3)
    alone = [model.generate(prompt, tokens=9, sampling=sampling).tokens for prompt in prompts]
    together = [each.tokens for each in model.generate_all(prompts, tokens=9, sampling=sampling)]
    assert together == alone
    whole = motet.llm.load(tmp_path, context=32, chunk=32, device=NATIVE)
    assert [whole.generate(prompt, tokens=9, sampling=sampling).tokens for prompt in prompts] == alone
    if settings:  # the context slides
        long = model.generate(prompts[2], tokens=20).tokens
        assert len(long) == 20 and long == whole.generate(prompts[2], tokens=20).tokens


def test_models_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    """Here because of its cache, of 128 bytes for each place; nothing is compiled before."""
    checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "max_position_embeddings": 1 << 40}))
    with pytest.raises(OutOfMemoryError, match="bytes available") as caught:
        motet.llm.load(tmp_path, context=1 << 40)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_near_their_floats(bits: int) -> None:
    matrix = np.random.default_rng(bits).normal(0, 1, (48, 128)).astype(np.float32)
    matrix[3] = 0
    for block in (32, 64, 128):
        made = quantise(matrix, bits, block).floats()
        largest = np.abs(matrix).reshape(48, -1, block).max(axis=2).repeat(block, axis=1)
        assert (np.abs(made - matrix) <= largest * (1.01 / 2**(bits - 1) + 1e-3)).all()
    with pytest.raises(OptionError, match=r"group: 48; expected one of 32, 64, 128"):
        quantise(matrix, bits, 48)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_products_by_blocks_are_those_of_their_floats(kind: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    short = motet.llm.load(tmp_path, context=16, weights=kind, device=NATIVE)
    rounded = {
        name: quantise(each, 4 if kind == "int4" else 8, 32).floats() if each.ndim == 2 and "embed" not in name
        else each for name, each in weights.items()
    }
    save_file(rounded, tmp_path / "model.safetensors")
    exact = motet.llm.load(tmp_path, context=16, device=NATIVE)
    for prompt in ([7], [5, 9, 30, 2, 2, 11]):
        np.testing.assert_allclose(short.read(prompt), exact.read(prompt), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_weights_in_bf16_and_the_end_of_the_context(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    prompt = [5, 9, 30, 2, 2, 11]
    exact, short = (motet.llm.load(tmp_path, context=8, weights=kind, device=NATIVE) for kind in ("f32", "bf16"))
    wanted, logits = exact.read(prompt), short.read(prompt)
    error = np.abs(logits - wanted).max() / np.abs(wanted).max()
    assert 1e-5 < error < 5e-2, error
    assert len(exact.generate(prompt, tokens=10).tokens) == 3  # two more fit, and the one after them is not read
    with pytest.raises(CallError, match="context of 8"):
        exact.generate([1] * 9)
