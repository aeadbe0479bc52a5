"""Language models: logits and greedy tokens of tiny random checkpoints against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
import motet.llm
from motet.errors import CallError

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
transformers: Any = pytest.importorskip("transformers", reason="needs transformers: make frameworks")

NATIVE = "host{cpu=native}"
SIZES = {
    "vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "eos_token_id": None, "bos_token_id": None,
    "pad_token_id": None, "initializer_range": 0.3,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", {"rope_scaling": LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen2_moe": ("Qwen2Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                               "shared_expert_intermediate_size": 40}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                               "head_dim": 16, "norm_topk_prob": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": 9}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 24,
                          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3", {"head_dim": 16, "sliding_window": 9,
                          "layer_types": ["sliding_attention", "full_attention"]}),
    "phi": ("Phi", {}),
    "phi3": ("Phi3", {}),
    "gpt2": ("GPT2", {}),
}
GPT2 = {"vocab_size": 131, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 64, "eos_token_id": None,
        "bos_token_id": None, "initializer_range": 0.3}


SLOW = {"mistral", "qwen2", "qwen3", "gemma", "phi3", "mixtral"}  # others have all that they have


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow if form in SLOW else ()) for form in FORMS])
def test_logits_and_tokens_are_those_of_transformers(form: str, tmp_path: Path) -> None:
    family, settings = FORMS[form]
    torch.manual_seed(7)
    config_class = transformers.Gemma3TextConfig if family == "Gemma3" else getattr(transformers, f"{family}Config")
    config = config_class(**(GPT2 if family == "GPT2" else SIZES), **settings)
    network_class = transformers.GPT2LMHeadModel if family == "GPT2" else getattr(transformers, f"{family}ForCausalLM")
    network = network_class(config).eval()
    for name, parameter in network.named_parameters():  # or biases are 0 and norms are 1
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, *((-0.5, 0.5) if name.endswith("bias") else (0.5, 1.5)))
    network.save_pretrained(tmp_path)
    prompt = [int(token) for token in np.random.default_rng(3).integers(0, 131, 13)]
    with torch.no_grad():
        wanted = network(torch.tensor([prompt])).logits[0, -1].numpy()
        tokens = network.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, 13:].tolist()
    model = motet.llm.load(tmp_path, context=40, chunk=5, device=NATIVE)
    np.testing.assert_allclose(model.read(prompt), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert model.generate(prompt, tokens=20).tokens == tokens
    longest = 64 if model.engine.slides else 40
    for wrong, message in (([], "empty"), ([0] * 65, f"context of {longest}"), ([131], "vocabulary has 131")):
        with pytest.raises(CallError, match=message):
            model.generate(wrong)


def test_text_goes_through_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'motet[llm]'")
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    words = {f"w{index}": index for index in range(131)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = motet.llm.load(tmp_path, context=32, device=NATIVE)
    made = model.generate("w3 w5 w8", tokens=6)
    assert made.reason == "length" and made.tokens == model.generate([3, 5, 8], tokens=6).tokens
    assert made.text.split() == [f"w{token}" for token in made.tokens]
    assert "".join(piece.text for piece in model.stream("w3 w5 w8", tokens=6)) == made.text
    stopped = model.generate("w3 w5 w8", tokens=6, stop=[f"w{made.tokens[2]}"])
    assert stopped.reason == "stop" and made.text.startswith(stopped.text)
    large = tokenizers.Tokenizer(tokenizers.models.WordLevel({**words, "more": 131}, unk_token="w0"))
    large.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(motet.OptionError, match="its largest token is 131; the model's vocabulary has 131"):
        motet.llm.load(tmp_path)
