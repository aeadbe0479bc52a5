"""motet generate: text from a language model, token by token."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.llm import LanguageModel

HELP = """Generate text with a language model: a folder in Hugging Face's layout, or a GGUF file.

\b
Examples:
  motet generate tiny.gguf --prompt "Once upon a time" --tokens 32 --stats
  motet generate SmolLM-135M --prompt "The sea" --weights int4 --temperature 0.8 --top-p 0.95 --seed 1
  motet generate model.gguf --prompt "Who are you?" --chat
"""


# The parameters of this function are the options of `motet generate`, read by typer.
def generate_text(
    model: Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="A folder, or a GGUF file.")],
    prompt: Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="The text to continue.")],
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="How many tokens are generated at most.")] = 128,
    chat: Annotated[bool, typer.Option(
        "--chat", help="The prompt is a user's message, by the model's template.")] = False,
    weights: Annotated[str | None, typer.Option(
        metavar="KIND", show_default=False,
        help="How matrices are stored: f32, bf16, int8, int4 (int4:128: groups of 128), or stored: as "
        "the file has them, the default for GGUF.",
    )] = None,
    context: Annotated[int, typer.Option(metavar="N", min=1, help="The longest text.")] = 2048,
    temperature: Annotated[float, typer.Option(metavar="T", help="0 takes the most probable token.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", metavar="N", help="Keep the N most probable tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", metavar="P", help="Keep the most probable, up to a sum P.")] = 1.0,
    min_p: Annotated[float, typer.Option("--min-p", metavar="P", help="Keep those with P of the highest.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(
        "--repetition-penalty", metavar="R", help="Divides logits of tokens that occurred.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed of random choices.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(
        metavar="TEXT", show_default=False, help="End before this text; may be repeated.")] = None,
    device: Annotated[str | None, typer.Option(
        metavar="DEVICE", show_default=False, help="A device expression, such as host or cuda:0.")] = None,
    gpu_layers: Annotated[int | None, typer.Option(
        "--gpu-layers", metavar="N", show_default=False, help="Put the last N layers on the GPU, others on the host.",
    )] = None,
    threads: arguments.Threads = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print rates, first-token time and memory.")] = False,
) -> None:
    import motet.llm

    sampling = motet.llm.Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    begin = time.perf_counter()
    loaded = motet.llm.load(
        model, context=context, weights=weights, threads=threads,
        device=device if gpu_layers is None else (device or "cuda,@cpu", gpu_layers))
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    if loaded.tokenizer is None:
        raise OptionError(f"{model}: it has no tokenizer.json; expected one, to read the prompt")
    ready = time.perf_counter()
    asked = loaded.chat([{"role": "user", "content": prompt}]) if chat else loaded.encode(prompt)
    times = [time.perf_counter()]
    for piece in loaded.stream(asked, tokens=tokens, sampling=sampling, stop=stop or ()):
        if piece.token >= 0:
            times.append(time.perf_counter())
        sys.stdout.write(piece.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    if stats:
        _show(loaded, len(asked), times, ready - begin)


def _show(model: LanguageModel, prompt: int, times: list[float], loading: float) -> None:
    """One line for each figure, on standard error."""
    count, first = len(times) - 1, times[min(1, len(times) - 1)] - times[0]
    lines = [f"compiled and loaded in {loading:.2f} s"]
    if count:
        rate = prompt / first
        lines.append(f"first token after {first * 1e3:.1f} ms ({prompt} tokens of prompt, {rate:.1f} tokens/s)")
    if count > 1:
        rest = times[-1] - times[1]
        lines.append(f"{count} tokens, {(count - 1) / rest:.1f} tokens/s after the first")
    memory = model.session.memory
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cache = sum(each.nbytes for each in model.engine.pool.arrays)
    lines.append(f"memory: weights {memory.parameters / 2**20:.1f} MiB, cache {cache / 2**20:.1f} MiB, process at most "
                 f"{most:.0f} MiB")
    for line in lines:
        typer.echo(line, err=True)
