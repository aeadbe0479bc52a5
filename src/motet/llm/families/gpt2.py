"""GPT-2: learnt positions, layer norms, and a feed-forward network without gate."""

from motet.llm.architecture import Architecture, Config, read_activation, read_ends
from motet.llm.tensors import Tensors, divided, renamed, transposed

_NAMES = {
    "transformer.": "model.", ".h.": ".layers.", "model.wte": "model.embed_tokens", "model.wpe": "model.positions",
    "attn.c_attn": "self_attn.qkv_proj", "attn.c_proj": "self_attn.o_proj", "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj", ".ln_1": ".input_layernorm", ".ln_2": ".post_attention_layernorm",
    "model.ln_f": "model.norm",
}
_MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def read(config: Config) -> Architecture:
    """The layers as `config` has them."""
    hidden, heads, layers = (config.integer(key) for key in ("n_embd", "n_head", "n_layer"))
    return Architecture(
        vocabulary=config.integer("vocab_size"), hidden=hidden, layers=layers, heads=heads, key_heads=heads,
        head_size=hidden // heads, epsilon=config.number("layer_norm_epsilon", 1e-5),
        context=config.integer("n_positions"), windows=(None,) * layers,
        tied=bool(config.values.get("tie_word_embeddings", True)), rotations=(), ends=read_ends(config),
        scale=(hidden // heads) ** -0.5, activation=read_activation(config, "activation_function", "gelu_new"),
        gated=False, norm="layer",
    )


def tensors(config: Config, weights: Tensors) -> Tensors:
    """The weights by the decoder's names; matrices are stored with inputs first."""
    hidden = config.integer("n_embd")
    whole = {name if name.startswith(("transformer.", "lm_head")) else f"transformer.{name}": tensor
             for name, tensor in weights.items()}
    whole = {name: transposed(tensor) if name.endswith(_MATRICES) else tensor for name, tensor in whole.items()}
    parts = tuple((f"{each}_proj", hidden) for each in "qkv")
    return divided(renamed(whole, _NAMES), {"qkv_proj": parts})
