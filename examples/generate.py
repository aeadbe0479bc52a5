"""Generate text with a language model, token by token; `tiny` makes one with random weights and compares.

    python examples/generate.py --model tiny --weights int4 --device host

With `--model tiny` the tokens are compared with transformers' for the same rounded weights, if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import motet.llm
from motet.llm.blocks import quantise

SIZES = {
    "model_type": "llama", "vocab_size": 260, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": None, "bos_token_id": None,
}


def make_tiny(folder: Path) -> None:
    """A Llama of two layers with random weights."""
    random = np.random.default_rng(0)
    shapes = {"model.embed_tokens": (260, 128), "lm_head": (260, 128), "model.norm": (128,)}
    for layer in range(2):
        own = {"input_layernorm": (128,), "post_attention_layernorm": (128,), "self_attn.q_proj": (128, 128),
               "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128), "self_attn.o_proj": (128, 128),
               "mlp.gate_proj": (256, 128), "mlp.up_proj": (256, 128), "mlp.down_proj": (128, 256)}
        shapes.update({f"model.layers.{layer}.{name}": shape for name, shape in own.items()})
    weights = {f"{name}.weight": random.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**SIZES, "architectures": ["LlamaForCausalLM"]}))


def round_weights(folder: Path, bits: int, group: int) -> None:
    """Replaces the matrices of products by the floats that their blocks stand for."""
    file = folder / "model.safetensors"
    weights = {
        name: quantise(each, bits, group).floats() if each.ndim == 2 and "embed" not in name else each
        for name, each in load_file(file).items()
    }
    save_file(weights, file, {"format": "pt"})


def compare(folder: Path, prompt: list[int], tokens: list[int]) -> bool:
    """Whether transformers generates the same tokens."""
    import torch
    import transformers

    network = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    made = network.generate(torch.tensor([prompt]), max_new_tokens=len(tokens), do_sample=False)[0, len(prompt) :]
    same = made.tolist() == tokens
    print(f"{sum(a == b for a, b in zip(made.tolist(), tokens, strict=True))} of {len(tokens)} tokens equal "
          "transformers'")
    return same


def generate_tiny(options: argparse.Namespace) -> int:
    prompt = [72, 101, 108, 108, 111]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tiny(folder)
        model = motet.llm.load(
            folder, weights=options.weights, device=options.device, context=256)
        tokens: list[int] = []
        for piece in model.stream(prompt, tokens=options.tokens):
            tokens.append(piece.token)
            print(piece.token, end=" ", flush=True)
        print()
        if importlib.util.find_spec("transformers") is None:
            print("transformers is not installed: nothing to compare with")
            return 0
        kind, _, group = (options.weights or "f32").partition(":")
        bits = {"int4": 4, "int8": 8}.get(kind)
        if bits is not None:
            round_weights(folder, bits, int(group or 32))
        return 0 if compare(folder, prompt, tokens) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, a folder in Hugging Face's layout, or a GGUF file")
    parser.add_argument("--weights", help="f32, bf16, int8, int4, int4:128, stored")
    parser.add_argument("--device", help="a device expression: host, cuda:0")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    if options.model == "tiny":
        return generate_tiny(options)
    model = motet.llm.load(options.model, weights=options.weights, device=options.device)
    for piece in model.stream(options.prompt, tokens=options.tokens):
        print(piece.text, end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
