"""The tokenizers of GGUF files: byte pairs as GPT-2's, and SentencePiece's with scores."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.errors import OptionError

_PREFIX = "tokenizer.ggml."
_WORDS = r"""(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|"""
_REST = r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
_PATTERNS = {  # how text is split before pairs are merged; others as GPT-2
    "llama-bpe": _WORDS + r"\p{N}{1,3}" + _REST, "llama3": _WORDS + r"\p{N}{1,3}" + _REST,
    "qwen2": _WORDS + r"\p{N}" + _REST,
}
_CONTROL, _BYTE = 3, 6


def read_tokenizer(path: Path, settings: Mapping[str, Any], vocabulary: int) -> tuple[Any, dict[str, str]]:
    """The tokenizer, None if the file has none, and the texts of the tokens that begin and end texts. Raises
    OptionError if it does not fit the vocabulary, or is of another kind."""
    tokens = settings.get(f"{_PREFIX}tokens")
    if not isinstance(tokens, list):
        return None, {}
    if len(tokens) > vocabulary:
        raise OptionError(f"{path}: its tokenizer has {len(tokens)} tokens; the model's vocabulary has {vocabulary}")
    try:
        library = importlib.import_module("tokenizers")
    except ModuleNotFoundError:
        raise OptionError(f"{path}: needs tokenizers; pip install 'motet[llm]'") from None
    kind = settings.get(f"{_PREFIX}model")
    kinds = settings.get(f"{_PREFIX}token_type") or [1] * len(tokens)
    try:
        if kind == "gpt2":
            tokenizer = _byte_pairs(library, tokens, settings)
        elif kind == "llama":
            tokenizer = _sentence_pieces(library, tokens, settings)
        else:
            raise OptionError(f"{path}: {_PREFIX}model: {kind!r} is not supported; expected gpt2 or llama")
        tokenizer.add_special_tokens([token for token, one in zip(tokens, kinds, strict=False) if one == _CONTROL])
        special = _special(tokens, settings)
        begins = settings.get(f"{_PREFIX}add_bos_token", kind == "llama")
        if begins and "bos_token" in special:
            number = settings[f"{_PREFIX}bos_token_id"]
            tokenizer.post_processor = library.processors.TemplateProcessing(
                single="$bos $0".replace("$bos", special["bos_token"]), special_tokens=[(special["bos_token"], number)])
    except OptionError:
        raise
    except Exception as error:  # the library raises bare exceptions
        raise OptionError(f"{path}: its tokenizer cannot be read: {error}") from None
    return tokenizer, special


def _special(tokens: Sequence[str], settings: Mapping[str, Any]) -> dict[str, str]:
    numbers = {key: settings.get(f"{_PREFIX}{key}_token_id") for key in ("bos", "eos")}
    return {f"{key}_token": tokens[number] for key, number in numbers.items()
            if isinstance(number, int) and number < len(tokens)}


def _byte_pairs(library: Any, tokens: Sequence[str], settings: Mapping[str, Any]) -> Any:
    merges = [tuple(merge.split(" ", 1)) for merge in settings.get(f"{_PREFIX}merges", [])]
    numbers = {token: number for number, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.BPE(numbers, merges, ignore_merges=True))
    pattern = _PATTERNS.get(settings.get(f"{_PREFIX}pre", ""))
    bytes_alone = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is None:
        tokenizer.pre_tokenizer = bytes_alone
    else:
        split = library.pre_tokenizers.Split(library.Regex(pattern), "isolated")
        tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([split, bytes_alone])
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _sentence_pieces(library: Any, tokens: Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Pairs are merged in the order of the scores of what they become."""
    scores = settings.get(f"{_PREFIX}scores") or [0.0] * len(tokens)
    numbers = {token: number for number, token in enumerate(tokens)}
    merges = [
        (scores[number], len(token), token[:cut], token[cut:])
        for token, number in numbers.items() for cut in range(1, len(token))
        if token[:cut] in numbers and token[cut:] in numbers
    ]
    merges.sort(key=lambda each: (-each[0], each[1]))
    unknown = settings.get(f"{_PREFIX}unknown_token_id", 0)
    model = library.models.BPE(
        numbers, [each[2:] for each in merges], unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    tokenizer = library.Tokenizer(model)
    decoders, normalizers = library.decoders, library.normalizers
    steps = [normalizers.Replace(" ", "▁")]
    prefix = settings.get(f"{_PREFIX}add_space_prefix", True)
    if prefix:
        steps.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        *([decoders.Strip(" ", 1, 0)] if prefix else []),
    ])
    return tokenizer
