"""Generation by language models with random weights of known shapes, next to llama.cpp and torch.compile.

    python -m benchmarks.generate --shapes llama-3.2-1b,qwen2.5-0.5b --weights bf16,int8,int4 --device host --cores 1,2
    python -m benchmarks.generate --shapes llama-3.2-1b --weights bf16 --device cuda:0

On the host both read the same GGUF file: Q4_0, Q8_0 or BF16. The limit is the time that reading all weights of a token
takes at the bandwidth that a copy-free sum reaches on as many cores. llama.cpp is `llama-cpp-python`, of this
environment or of that of `--llama-python`. The peer and Motet run in turns, `--rounds` times, each in a process of its
own; the fastest and the median token of all rounds are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PROMPT, DECODED = 512, 24
KINDS = {"int4": "Q4_0", "int8": "Q8_0", "bf16": "BF16"}


@dataclass(frozen=True)
class Shape:
    """The numbers of a model."""

    family: str
    layers: int
    hidden: int
    width: int
    heads: int
    key_heads: int
    vocabulary: int
    tied: bool
    biases: bool = False

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def matrices(self) -> dict[str, tuple[int, int]]:
        """The matrices by GGUF's names."""
        keys = self.key_heads * self.head
        own = {"attn_q": (self.hidden, self.hidden), "attn_k": (keys, self.hidden), "attn_v": (keys, self.hidden),
               "attn_output": (self.hidden, self.hidden), "ffn_gate": (self.width, self.hidden),
               "ffn_up": (self.width, self.hidden), "ffn_down": (self.hidden, self.width)}
        found = {f"blk.{layer}.{name}": shape for layer in range(self.layers) for name, shape in own.items()}
        found["token_embd"] = (self.vocabulary, self.hidden)
        if not self.tied:
            found["output"] = found["token_embd"]
        return found


SHAPES = {
    "llama-3.2-1b": Shape("llama", 16, 2048, 8192, 32, 8, 128256, True),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 151936, True, True),
    "llama-3-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128256, False),
    "tiny": Shape("llama", 2, 256, 512, 8, 2, 1024, True),
}


def write_gguf(path: Path, shape: Shape, kind: str) -> int:
    """Writes a model with random weights; returns the bytes of its matrices, each of which a token reads once."""
    import gguf

    writer = gguf.GGUFWriter(path, shape.family)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.head)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    ones = np.ones(shape.hidden, np.float32)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(shape.layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
        if shape.biases:
            for name in ("q", "k", "v"):
                size = shape.hidden if name == "q" else shape.key_heads * shape.head
                writer.add_tensor(f"blk.{layer}.attn_{name}.bias", np.zeros(size, np.float32))
    total = 0
    random = np.random.default_rng(0)
    for name, (rows, columns) in shape.matrices().items():
        data = random_matrix(random, rows, columns, kind)
        total += data.nbytes
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[KINDS[kind]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


def random_matrix(random: np.random.Generator, rows: int, columns: int, kind: str) -> np.ndarray:
    """The bytes of a matrix whose elements have a deviation of some 0.02."""
    if kind == "bf16":
        values = random.standard_normal((rows, columns), np.float32) * np.float32(0.02)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    each = 18 if kind == "int4" else 34
    data = random.integers(0, 256, (rows, columns // 32, each), np.uint8)
    data[:, :, :2] = np.array([0.004 if kind == "int4" else 0.0003], np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def bandwidth(cores: int) -> float:
    """Bytes per second that `cores` threads read, in sums of memory that no cache holds."""
    arrays = [np.ones(64 << 20, np.int64) for _ in range(cores)]  # 512 MiB each
    best = 0.0
    for _ in range(3):
        threads = [threading.Thread(target=np.bitwise_or.reduce, args=(array,)) for array in arrays]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, sum(array.nbytes for array in arrays) / (time.perf_counter() - begin))
    return best


# -- contenders, each in a process ---------------------------------------------------------------------------


def run_motet(path: Path, cores: int, device: str, weights: str) -> dict[str, Any]:
    """Seconds of a prompt, and of each token after it."""
    import motet.llm
    from motet.llm.engine import Text

    kind = None if device == "host" else "bf16" if weights == "bf16" else None
    begin = time.perf_counter()
    model = motet.llm.load(path, context=PROMPT + 2 * DECODED + 64, chunk=PROMPT, threads=cores, weights=kind,
                           device="host{cpu=native}" if device == "host" else device)
    loading = time.perf_counter() - begin
    tokens = [int(token) for token in np.random.default_rng(1).integers(0, 1000, PROMPT)]
    engine, prompts = model.engine, list[float]()
    steps: list[float] = []
    for _ in range(2):
        text = Text(list(tokens), DECODED, motet.llm.Sampling())
        engine.add(text)
        begin = time.perf_counter()
        engine.step()
        prompts.append(time.perf_counter() - begin)
        while engine.busy:
            begin = time.perf_counter()
            engine.step()
            steps.append(time.perf_counter() - begin)
    return {"prompt": prompts, "steps": steps, "loading": loading}


_LLAMA = """
import json, sys, time
import numpy as np
from llama_cpp import Llama
path, cores, prompt, decoded = sys.argv[1], *map(int, sys.argv[2:])
model = Llama(path, n_ctx=prompt + 2 * decoded + 64, n_batch=512, n_ubatch=512, n_threads=cores,
              n_threads_batch=cores, verbose=False, logits_all=False)
tokens = [int(token) for token in np.random.default_rng(1).integers(0, 1000, prompt)]
prompts, steps = [], []
for _ in range(2):
    model.reset()
    begin = time.perf_counter(); model.eval(tokens); prompts.append(time.perf_counter() - begin)
    for token in tokens[: decoded - 1]:
        begin = time.perf_counter(); model.eval([token]); steps.append(time.perf_counter() - begin)
print(json.dumps({"prompt": prompts, "steps": steps}))
"""


def run_llama(python: str, path: Path, cores: int) -> dict[str, Any] | None:
    """The same of llama.cpp; None if it is not installed."""
    made = subprocess.run([python, "-c", _LLAMA, str(path), str(cores), str(PROMPT), str(DECODED)],
                          capture_output=True, text=True, timeout=600)
    if made.returncode:
        print(f"  llama.cpp: {made.stderr.strip().splitlines()[-1] if made.stderr else made.returncode}")
        return None
    return json.loads(made.stdout.strip().splitlines()[-1])


_TORCH = """
import json, sys, time
import torch, transformers
family, numbers = sys.argv[1], json.loads(sys.argv[2])
prompt, decoded = int(sys.argv[3]), int(sys.argv[4])
config = getattr(transformers, family + "Config")(**numbers)
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
cache = transformers.StaticCache(config=config, max_cache_len=prompt + decoded + 64)
step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
tokens = torch.randint(0, 1000, (1, prompt), device="cuda")
with torch.no_grad():
    begin = time.perf_counter()
    logits = model(tokens, past_key_values=cache, cache_position=torch.arange(prompt, device="cuda")).logits
    token = logits[:, -1:].argmax(-1); torch.cuda.synchronize(); prompts = [time.perf_counter() - begin]
    steps = []
    for number in range(decoded + 4):
        begin = time.perf_counter()
        position = torch.tensor([prompt + number], device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        logits = step(token, past_key_values=cache, cache_position=position).logits
        token = logits[:, -1:].argmax(-1).clone(); torch.cuda.synchronize()
        steps.append(time.perf_counter() - begin)
print(json.dumps({"prompt": prompts, "steps": steps[4:]}))
"""


def run_torch(shape: Shape) -> dict[str, Any] | None:
    """The same of torch.compile with a static cache, on the GPU."""
    numbers = {"vocab_size": shape.vocabulary, "hidden_size": shape.hidden, "intermediate_size": shape.width,
               "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
               "num_key_value_heads": shape.key_heads, "max_position_embeddings": 4096,
               "tie_word_embeddings": shape.tied}
    family = {"llama": "Llama", "qwen2": "Qwen2"}[shape.family]
    made = subprocess.run([sys.executable, "-c", _TORCH, family, json.dumps(numbers), str(PROMPT), str(DECODED)],
                          capture_output=True, text=True, timeout=600)
    if made.returncode:
        print(f"  torch: {made.stderr.strip().splitlines()[-1] if made.stderr else made.returncode}")
        return None
    return json.loads(made.stdout.strip().splitlines()[-1])


def run_alone(path: Path, cores: int, device: str, weights: str) -> dict[str, Any]:
    """`run_motet` in a process."""
    command = [sys.executable, "-m", "benchmarks.generate", "--one", str(path), "--cores", str(cores),
               "--device", device, "--weights", weights]
    made = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if made.returncode:
        raise SystemExit(made.stderr)
    return json.loads(made.stdout.strip().splitlines()[-1])


# -- the table -----------------------------------------------------------------------------------------------


def joined(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    """The times of two rounds."""
    if first is None or second is None:
        return first or second
    return {key: first[key] + second[key] for key in ("prompt", "steps")}


def show(name: str, made: dict[str, Any] | None, limit: float) -> tuple[float, float] | None:
    if made is None:
        return None
    fastest, middle = min(made["steps"]), statistics.median(made["steps"])
    prompt = min(made["prompt"])
    print(f"  {name:10} decode {1 / fastest:7.1f} tokens/s at best, {1 / middle:7.1f} median, "
          f"{limit / fastest * 100:5.1f} % of bandwidth; prompt {PROMPT / prompt:8.1f} tokens/s", flush=True)
    return fastest, prompt


def compare(name: str, kind: str, options: argparse.Namespace, folder: Path) -> None:
    shape, path = SHAPES[name], folder / f"{name}-{kind}.gguf"
    size = write_gguf(path, shape, kind)
    for cores in map(int, options.cores.split(",")):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores] if options.pin else os.sched_getaffinity(0))
        on_host = options.device == "host"
        speed = bandwidth(cores) if on_host else options.gpu_bandwidth
        print(f"{name} {kind} {options.device}, {cores} cores: {size / 2**20:.0f} MiB of weights, "
              f"{speed / 1e9:.1f} GB/s", flush=True)
        peer: dict[str, Any] | None = None
        own: dict[str, Any] | None = None
        for _ in range(options.rounds):
            peer = joined(peer, run_llama(options.llama_python, path, cores) if on_host else run_torch(shape))
            own = joined(own, run_alone(path, cores, options.device, kind))
        ours = show("motet", own, size / speed)
        theirs = show("llama.cpp" if on_host else "torch", peer, size / speed)
        if ours and theirs:
            print(f"  motet / peer: decode {theirs[0] / ours[0]:.2f}, prompt {theirs[1] / ours[1]:.2f}", flush=True)
    path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="llama-3.2-1b,qwen2.5-0.5b", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--weights", default="bf16,int8,int4")
    parser.add_argument("--device", default="host")
    parser.add_argument("--cores", default="1")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pin", action="store_true", help="run on the first cores only")
    parser.add_argument("--llama-python", default=sys.executable, help="the Python that has llama-cpp-python")
    parser.add_argument("--gpu-bandwidth", type=float, default=3.35e12, help="bytes per second, as published")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run_motet(options.one, int(options.cores), options.device, options.weights)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.shapes.split(","):
            for kind in options.weights.split(","):
                compare(name, kind, options, Path(folder))


if __name__ == "__main__":
    main()
