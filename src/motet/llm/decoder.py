"""A decoder as a program: some new tokens after a cache of keys and values.

Inputs: `x` f32 [tokens, hidden], embeddings; for each rotary embedding `cosine_R` and `sine_R` f32 [tokens,
rotated / 2]; for each length of windows `past_M` f32 [tokens, past] and `new_M` f32 [tokens, tokens], added to the
scores of cached and of new keys; `chosen` f32 [outputs, tokens], which selects the rows whose logits are wanted; for
each layer `keys_L` and `values_L` f32 [key_heads, past, head_size]. Results: logits f32
[outputs, vocabulary], and each layer's new keys and values. Masks alone say which keys a token reads:
the cached ones may belong to several texts, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

import motet.builder as mb
from motet.errors import OptionError
from motet.llm.architecture import Architecture, Experts
from motet.llm.blocks import BlockMatrix, quantise
from motet.llm.tensors import Tensors, Weight

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
BITS = {"int8": 8, "int4": 4}
WEIGHTS = (*DTYPES, *BITS, "stored")


def window_sizes(architecture: Architecture) -> list[int | None]:
    """The different windows of the layers; mask M is that of entry M."""
    return list(dict.fromkeys(architecture.windows))


def build_decoder(
    architecture: Architecture, weights: Tensors, kind: str = "f32", group: int = 32, gpu_layers: int | None = None
) -> mb.Graph:
    """The program with matrices as `kind`: f32, bf16, int8 or int4 in blocks of `group`, or `stored`, as the
    checkpoint has them. With `gpu_layers`, the last so many layers are on the device `gpu`, all others on `cpu`.
    Raises OptionError for a missing tensor, or one of another shape."""
    with mb.Graph("decoder") as graph:
        _Decoder(graph, architecture, weights, kind, group, gpu_layers).build()
    return graph


@dataclass(frozen=True)
class _Positions:
    """What layers read: angles of rotary embedding, and a mask."""

    cosine: mb.Tensor | None
    sine: mb.Tensor | None
    mask: mb.Tensor

    def rotated(self, x: mb.Tensor) -> mb.Tensor:
        """Rotary embedding of [heads, tokens, head_size]: pairs are half of the rotated elements apart."""
        if self.cosine is None or self.sine is None:
            return x
        half, size = self.cosine.shape[-1], x.shape[-1]
        assert isinstance(half, int) and isinstance(size, int)
        first, second, *rest = (
            mb.slice(x, [0, 0, begin], [None, None, end])
            for begin, end in ((0, half), (half, 2 * half), (2 * half, size)) if begin < end
        )
        return mb.concat(
            [first * self.cosine - second * self.sine, second * self.cosine + first * self.sine, *rest], axis=2
        )


@dataclass(frozen=True)
class _Decoder:
    graph: mb.Graph
    architecture: Architecture
    weights: Tensors
    kind: str
    group: int
    gpu_layers: int | None

    def build(self) -> None:
        a, g = self.architecture, self.graph
        x = g.input("x", ("tokens", a.hidden), device=self.home(-1))
        angles = [
            tuple(g.input(f"{name}_{r}", ("tokens", each.frequencies.size)) for name in ("cosine", "sine"))
            for r, each in enumerate(a.rotations)
        ]
        masks = [
            mb.concat([g.input(f"past_{m}", ("tokens", "past")), g.input(f"new_{m}", ("tokens", "tokens"))], axis=1)
            for m in range(len(window_sizes(a)))
        ]
        chosen = g.input("chosen", ("outputs", "tokens"))
        cached = [
            [g.input(f"{name}_{layer}", (a.key_heads, "past", a.head_size), device=self.home(layer))
             for name in ("keys", "values")]
            for layer in range(a.layers)
        ]
        fresh: list[mb.Tensor] = []
        for layer, (keys, values) in enumerate(cached):
            rotation = a.rotation(layer)
            cosine, sine = (None, None) if rotation is None else angles[rotation]
            step = _Positions(cosine, sine, masks[window_sizes(a).index(a.windows[layer])])
            x, key, value = self.layer(layer, x, step, keys, values)
            fresh += [key, value]
        logits = self.linear("lm_head", self.norm("model.norm", chosen @ x), a.vocabulary)
        g.result(_capped(logits, a.logit_cap), name="logits")
        for index, tensor in enumerate(fresh):
            g.result(tensor, name=f"{('new_keys', 'new_values')[index % 2]}_{index // 2}", device=self.home(index // 2))

    def home(self, layer: int) -> str | None:
        """The device of a layer; -1 is what precedes all layers."""
        if self.gpu_layers is None:
            return None
        return "gpu" if layer >= self.architecture.layers - self.gpu_layers else "cpu"

    def layer(
        self, layer: int, x: mb.Tensor, step: _Positions, keys: mb.Tensor, values: mb.Tensor
    ) -> tuple[mb.Tensor, mb.Tensor, mb.Tensor]:
        """The result, and the new keys and values."""
        a, prefix = self.architecture, f"model.layers.{layer}"
        normal = self.norm(f"{prefix}.input_layernorm", x)
        read, key, value = self.attention(prefix, normal, step, keys, values)
        if a.parallel:
            return x + read + self.feed_forward(prefix, normal), key, value
        x = x + (self.norm(f"{prefix}.after_attention", read) if a.sandwich else read)
        normal = self.norm(f"{prefix}.post_attention_layernorm", x)
        sparse = a.experts is not None and layer in a.experts.sparse
        made = self.mixture(prefix, normal, a.experts) if sparse and a.experts else self.feed_forward(prefix, normal)
        return x + (self.norm(f"{prefix}.after_feed_forward", made) if a.sandwich else made), key, value

    def attention(
        self, prefix: str, x: mb.Tensor, step: _Positions, keys: mb.Tensor, values: mb.Tensor
    ) -> tuple[mb.Tensor, mb.Tensor, mb.Tensor]:
        """The result, and the new keys and values."""
        a = self.architecture
        query = step.rotated(self.heads(f"{prefix}.self_attn.q", x, a.heads))
        key = step.rotated(self.heads(f"{prefix}.self_attn.k", x, a.key_heads))
        value = self.heads(f"{prefix}.self_attn.v", x, a.key_heads)
        grouped = mb.reshape(query, [a.key_heads, a.heads // a.key_heads, "tokens", a.head_size])
        every = [mb.concat([old, new], axis=1) for old, new in ((keys, key), (values, value))]
        keys, values = (mb.reshape(t, [a.key_heads, 1, t.shape[1], a.head_size]) for t in every)
        scores = _capped(mb.matmul(grouped, keys, transpose_rhs=True) * a.scale, a.score_cap) + step.mask
        read = mb.reshape(mb.matmul(mb.softmax(scores), values), [a.heads, "tokens", a.head_size])
        joined = mb.reshape(mb.transpose(read, [1, 0, 2]), ["tokens", a.heads * a.head_size])
        return self.linear(f"{prefix}.self_attn.o_proj", joined, a.hidden), key, value

    def heads(self, name: str, x: mb.Tensor, count: int) -> mb.Tensor:
        """A projection by heads, [heads, tokens, head_size], normalised if the checkpoint has a norm for it."""
        size = self.architecture.head_size
        y = mb.reshape(self.linear(f"{name}_proj", x, count * size), ["tokens", count, size])
        if f"{name}_norm.weight" in self.weights:
            y = self.norm(f"{name}_norm", y)
        return mb.transpose(y, [1, 0, 2])

    def feed_forward(self, prefix: str, x: mb.Tensor, part: str = "mlp") -> mb.Tensor:
        width = self.tensor(f"{prefix}.{part}.up_proj.weight").shape[0]
        inner = self.linear(f"{prefix}.{part}.up_proj", x, width)
        if self.architecture.gated:
            inner = self.activated(self.linear(f"{prefix}.{part}.gate_proj", x, width)) * inner
        else:
            inner = self.activated(inner)
        return self.linear(f"{prefix}.{part}.down_proj", inner, self.architecture.hidden)

    def activated(self, x: mb.Tensor) -> mb.Tensor:
        name = self.architecture.activation
        return mb.silu(x) if name == "silu" else mb.gelu(x, "tanh" if name == "gelu_tanh" else "none")

    def mixture(self, prefix: str, x: mb.Tensor, experts: Experts) -> mb.Tensor:
        """All experts, each multiplied by the share that the router gives it, which is 0 for those not used."""
        router = self.tensor(f"{prefix}.mlp.gate.weight", (experts.count, self.architecture.hidden))
        weight = self.graph.constant(_written_out(router), name=f"{prefix}.mlp.gate")
        shares = self.shares(mb.softmax(mb.matmul(x, weight, transpose_rhs=True)), experts)
        total: mb.Tensor | None = None
        for expert in range(experts.count):
            share = mb.slice(shares, [0, expert], [None, expert + 1])
            made = self.feed_forward(prefix, x, f"mlp.experts.{expert}") * share
            total = made if total is None else total + made
        assert total is not None
        if f"{prefix}.mlp.shared_expert.up_proj.weight" in self.weights:
            gate = self.graph.constant(
                _written_out(self.tensor(f"{prefix}.mlp.shared_expert_gate.weight")), name=f"{prefix}.shared_gate")
            opened = mb.sigmoid(mb.matmul(x, gate, transpose_rhs=True))
            total = total + self.feed_forward(prefix, x, "mlp.shared_expert") * opened
        return total

    def shares(self, probabilities: mb.Tensor, experts: Experts) -> mb.Tensor:
        """The probabilities of the most probable experts, the first of equal ones; 0 for others."""
        numbers = self.graph.constant(np.arange(experts.count, dtype=np.float32)[None])
        left, kept = probabilities, probabilities * 0.0
        for _ in range(experts.used):
            best = mb.greater_equal(left, mb.reduce_max(left, axes=-1, keepdims=True))
            first = mb.reduce_min(mb.where(best, numbers, float(experts.count)), axes=-1, keepdims=True)
            taken = mb.equal(numbers + left * 0.0, first)
            kept = mb.where(taken, probabilities, kept)
            left = mb.where(taken, -1.0, left)
        return kept / mb.reduce_sum(kept, axes=-1, keepdims=True) if experts.normalised else kept

    def norm(self, name: str, x: mb.Tensor) -> mb.Tensor:
        size, epsilon = x.shape[-1], self.architecture.epsilon
        assert isinstance(size, int)
        weight = self.graph.constant(_written_out(self.tensor(f"{name}.weight", (size,))), name=name)
        if self.architecture.norm == "layer":
            bias = self.graph.constant(_written_out(self.tensor(f"{name}.bias", (size,))), name=f"{name}.bias")
            middle = x - mb.reduce_mean(x, axes=-1, keepdims=True)
            return middle * mb.rsqrt(mb.reduce_mean(middle * middle, axes=-1, keepdims=True) + epsilon) * weight + bias
        return x * mb.rsqrt(mb.reduce_mean(x * x, axes=-1, keepdims=True) + epsilon) * weight

    def linear(self, name: str, x: mb.Tensor, results: int) -> mb.Tensor:
        inputs = x.shape[-1]
        assert isinstance(inputs, int)
        source = "model.embed_tokens" if name == "lm_head" and self.architecture.tied else name
        weight = self.matrix(source, self.tensor(f"{source}.weight", (results, inputs)))
        y = mb.matmul(x if weight.dtype == "f32" else mb.cast(x, weight.dtype), weight, transpose_rhs=True, dtype="f32")
        if f"{name}.bias" in self.weights:
            bias = self.tensor(f"{name}.bias", (results,))
            y = y + self.graph.constant(_written_out(bias), name=f"{name}.bias")
        return y

    def matrix(self, name: str, stored: Weight) -> mb.Tensor:
        """A matrix as the program stores it, widened to what products read."""
        g = self.graph
        if self.kind in BITS:
            stored = quantise(_written_out(stored), BITS[self.kind], self.group)
        elif self.kind in DTYPES:
            stored = (stored if isinstance(stored, np.ndarray) else stored.floats()).astype(DTYPES[self.kind])
        elif isinstance(stored, np.ndarray) and stored.dtype == np.float16:
            stored = stored.astype(np.float32)
        if isinstance(stored, np.ndarray):
            return g.constant(np.ascontiguousarray(stored), name=name)
        rows, columns = stored.shape
        blocks = columns // stored.block
        wide = mb.cast(mb.reshape(g.constant(stored.numbers, name=name), [rows, blocks, stored.block]), "f32")
        wide = wide * mb.reshape(mb.cast(g.constant(stored.scales, name=f"{name}.scales"), "f32"), [rows, blocks, 1])
        if stored.shifts is not None:
            shifts = g.constant(stored.shifts, name=f"{name}.shifts")
            wide = wide + mb.reshape(mb.cast(shifts, "f32"), [rows, blocks, 1])
        return mb.reshape(wide, [rows, columns])

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Weight:
        if name not in self.weights:
            raise OptionError(f"checkpoint: it has no tensor {name}; expected one for each layer of config.json")
        tensor = self.weights[name]
        if shape is not None and tensor.shape != shape:
            raise OptionError(f"checkpoint: {name} is {list(tensor.shape)}; config.json needs {list(shape)}")
        return tensor


def _written_out(tensor: Weight) -> np.ndarray:
    """A tensor as f32."""
    return tensor.floats() if isinstance(tensor, BlockMatrix) else tensor.astype(np.float32)


def _capped(x: mb.Tensor, cap: float | None) -> mb.Tensor:
    return x if cap is None else mb.tanh(x * (1 / cap)) * cap
