"""Write a small language model with random weights as a GGUF file, with a tokenizer of bytes.

    python examples/make_gguf.py build/tiny.gguf [--type Q4_0]
    motet generate build/tiny.gguf --prompt "Once upon a time" --tokens 32 --stats
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

LAYERS, HIDDEN, WIDTH, HEADS, KEY_HEADS, CONTEXT = 2, 256, 512, 8, 2, 512
END = "<|end|>"


def write_model(path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """A Llama of two layers, with matrices of the type `kind`."""
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "in", END]
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["t h", "i n"])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:")
    random = np.random.default_rng(0)
    keys = HIDDEN // HEADS * KEY_HEADS
    matrices = {"token_embd": (len(tokens), HIDDEN), "output": (len(tokens), HIDDEN)}
    for layer in range(LAYERS):
        shapes = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (keys, HIDDEN), "attn_v": (keys, HIDDEN),
                  "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (WIDTH, HIDDEN), "ffn_up": (WIDTH, HIDDEN),
                  "ffn_down": (HIDDEN, WIDTH)}
        matrices.update({f"blk.{layer}.{name}": shape for name, shape in shapes.items()})
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for name, shape in matrices.items():
        values = random.normal(0, 0.1, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--type", default="Q4_0", choices=["Q4_0", "Q8_0", "F16", "BF16", "F32"])
    options = parser.parse_args()
    options.file.parent.mkdir(parents=True, exist_ok=True)
    write_model(options.file, gguf.GGMLQuantizationType[options.type])
    print(f"{options.file}: {options.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
