"""Forty functions in typical JAX style, whose results are compared with JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.results import Wrong

DEVICES = "host{cpu=x86-64-v3}"


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    tolerance: float = 2e-5


def cases(suite: str) -> list[str]:
    """The names of the functions."""
    return list(_by_name())


def check(suite: str, case: str) -> None:
    """Compile and run a case."""
    _check(_by_name()[case])


@functools.cache
def _by_name() -> dict[str, Case]:
    import jax

    jax.config.update("jax_platforms", "cpu")
    return {case.name: case for case in _functions()}


def _functions() -> list[Case]:
    import jax
    import jax.numpy as jnp
    from jax import lax, nn
    from jax import random as jr

    def a(*shape: int, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)

    def i(high: int, *shape: int) -> np.ndarray:
        return np.random.default_rng(high).integers(0, high, shape).astype(np.int32)

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores), v)

    def conv(x: Any, w: Any, **options: Any) -> Any:
        return lax.conv_general_dilated(x, w, **{"window_strides": (1, 1), "padding": "SAME"} | options)

    def conv_net(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        y = nn.relu(conv(x, w1))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        y = nn.relu(conv(y, w2, window_strides=(2, 2)))
        return y.mean((2, 3)) @ w3

    def rnn(h: Any, w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x @ u)
            return h, h

        return lax.scan(step, h, xs)

    def mlp(parameters: Any, x: Any) -> Any:
        w1, b1, w2, b2 = parameters
        return nn.relu(x @ w1 + b1) @ w2 + b2

    def mlp_loss(parameters: Any, x: Any, y: Any) -> Any:
        return -jnp.take_along_axis(nn.log_softmax(mlp(parameters, x)), y[:, None], 1).mean()

    def mlp_step(parameters: Any, x: Any, y: Any) -> Any:
        loss, slopes = jax.value_and_grad(mlp_loss)(parameters, x, y)
        return loss, jax.tree.map(lambda p, g: p - 0.1 * g, parameters, slopes)

    weights = (a(20, 32) / 5, np.zeros(32, np.float32), a(32, 10) / 6, np.zeros(10, np.float32))

    def norm(x: Any, g: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

    def transformer_loss(p: Any, tokens: Any) -> Any:
        x = p["embedding"][tokens] + p["position"]
        for layer in range(2):
            q, k, v = jnp.split(norm(x, p["g"][layer]) @ p["qkv"][layer], 3, -1)
            heads = [t.reshape(*t.shape[:2], 2, -1).swapaxes(1, 2) for t in (q, k, v)]
            x = x + attention(*heads).swapaxes(1, 2).reshape(x.shape) @ p["out"][layer]
            x = x + nn.gelu(norm(x, p["h"][layer]) @ p["up"][layer]) @ p["down"][layer]
        scores = nn.log_softmax(x[:, :-1] @ p["embedding"].T)
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()

    def transformer_step(p: Any, m: Any, v: Any, t: Any, tokens: Any) -> Any:
        loss, g = jax.value_and_grad(transformer_loss)(p, tokens)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        rate = 1e-3 * jnp.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        return loss, jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v

    model = {
        "embedding": a(50, 16) / 4, "position": a(12, 16) / 10, "g": np.ones((2, 16), np.float32),
        "h": np.ones((2, 16), np.float32), "qkv": a(2, 16, 48) / 4, "out": a(2, 16, 16) / 4,
        "up": a(2, 16, 64) / 4, "down": a(2, 64, 16) / 8,
    }  # fmt: skip
    zeros = {name: np.zeros_like(value) for name, value in model.items()}

    def sinkhorn(cost: Any) -> Any:
        def step(_: Any, uv: Any) -> Any:
            u = -nn.logsumexp(-cost + uv[1][None], axis=1)
            return u, -nn.logsumexp(-cost + u[:, None], axis=0)

        return lax.fori_loop(0, 10, step, (jnp.zeros(cost.shape[0]), jnp.zeros(cost.shape[1])))

    def collatz(n: Any) -> Any:
        step = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)  # noqa: E731
        return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    spd = a(6, 6) @ a(6, 6).T + 6 * np.eye(6, dtype=np.float32)
    key = np.array([7, 11], np.uint32)
    image = a(2, 3, 16, 16)
    return [
        Case(
            "activations",
            lambda x: [f(x) for f in (nn.gelu, nn.silu, nn.elu, nn.selu, nn.softplus, nn.mish)],
            (a(33, 7),),
        ),
        Case(
            "special functions",
            lambda x: (
                jax.scipy.special.erf(x),
                jax.scipy.special.gammaln(x + 3),
                jax.scipy.special.digamma(x + 3),
                jax.scipy.special.i1e(x),
            ),
            (np.abs(a(65)),),
            1e-4,
        ),
        Case("softmax", lambda x: (nn.softmax(x), nn.log_softmax(x, 0), nn.logsumexp(x, 1)), (a(17, 40),)),
        Case("layer norm", norm, (a(8, 31), a(31))),
        Case("attention", attention, (a(2, 4, 16, 8), a(2, 4, 16, 8, seed=1), a(2, 4, 16, 8, seed=2))),
        Case("einsum", lambda x, y: jnp.einsum("abc,dcb->ad", x, y), (a(5, 6, 7), a(4, 7, 6))),
        Case(
            "convolution", lambda x, w: conv(x, w, window_strides=(2, 1), rhs_dilation=(1, 2)), (image, a(8, 3, 3, 3))
        ),
        Case("grouped convolution", lambda x, w: conv(x, w, feature_group_count=3), (image, a(6, 1, 3, 3))),
        Case(
            "transposed convolution",
            lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
            (a(1, 8, 8, 4), a(3, 3, 4, 6)),
        ),
        Case("conv net", conv_net, (image, a(8, 3, 3, 3) / 5, a(16, 8, 3, 3) / 8, a(16, 10))),
        Case(
            "gradient of a conv net",
            jax.grad(lambda *p: (conv_net(*p) ** 2).sum(), (1, 2, 3)),
            (image, a(8, 3, 3, 3) / 5, a(16, 8, 3, 3) / 8, a(16, 10)),
            1e-4,
        ),
        Case(
            "average pool",
            lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") / 9,
            (image,),
        ),
        Case("scan of an RNN", rnn, (a(4, 8), a(8, 8) / 3, a(5, 8), a(10, 4, 5))),
        Case(
            "gradient of an RNN",
            jax.grad(lambda *p: (rnn(*p)[1] ** 2).sum(), (0, 1, 2)),
            (a(4, 8), a(8, 8) / 3, a(5, 8), a(10, 4, 5)),
            1e-4,
        ),
        Case("while", collatz, (np.int32(27),)),
        Case("fori", sinkhorn, (a(9, 12),)),
        Case(
            "cond and switch",
            lambda n, x: (lax.cond(n > 1, jnp.sin, jnp.cos, x), lax.switch(n, [jnp.exp, jnp.tanh, jnp.abs], x)),
            (np.int32(2), a(9)),
        ),
        Case(
            "associative scan",
            lambda x: (lax.associative_scan(jnp.multiply, x), lax.cumlogsumexp(x), jnp.cumsum(x)),
            (a(37),),
        ),
        Case("sort", lambda x: (jnp.sort(x, 0), jnp.argsort(x), jnp.sort(x, descending=True)), (a(13, 19),)),
        Case("sort by two keys", lambda x, y: lax.sort((x, y, x + 1), num_keys=2), (i(5, 50), a(50))),
        Case("top k", lambda x: lax.top_k(x, 5), (a(4, 100),)),
        Case("median and quantile", lambda x: (jnp.median(x), jnp.quantile(x, 0.3, axis=0)), (a(15, 4),)),
        Case("searchsorted", lambda x, y: jnp.searchsorted(jnp.sort(x), y), (a(40), a(9))),
        Case(
            "at set, add, max",
            lambda x, j, v: (x.at[j].set(v[0]), x.at[j].add(v), x.at[:, j % 3].max(2.0), x.at[j].mul(v)),
            (a(10, 4), i(10, 6), a(6, 4)),
        ),
        Case("segment sum", lambda x, s: jax.ops.segment_sum(x, s, 5), (a(20, 3), i(5, 20))),
        Case("histogram", lambda x: jnp.bincount(x, length=8), (i(8, 100),)),
        Case("gradient of an embedding", jax.grad(lambda e, t: (e[t] ** 2).sum()), (a(30, 8), i(30, 4, 6))),
        Case(
            "take along axis",
            lambda x, j: (jnp.take_along_axis(x, j, 1), x[j[0] % 4, j[0]], x[::-1, 1::2]),
            (a(4, 9), i(9, 4, 5)),
        ),
        Case(
            "dynamic slices",
            lambda x, n: (lax.dynamic_slice(x, (n, n), (3, 3)), lax.dynamic_update_slice(x, x[:2, :2], (n, 0))),
            (a(8, 8), np.int32(7)),
        ),
        Case(
            "fft",
            lambda x: (jnp.fft.fft(x), jnp.abs(jnp.fft.rfft(x)), jnp.fft.irfft(jnp.fft.rfft(x))),
            (a(3, 60),),
            1e-4,
        ),
        Case(
            "fft convolution in 2-D",
            lambda x, y: jnp.fft.ifft2(jnp.fft.fft2(x) * jnp.fft.fft2(y)).real,
            (a(16, 20), a(16, 20)),
            1e-4,
        ),
        Case("cholesky", jnp.linalg.cholesky, (spd,), 1e-4),
        Case(
            "triangular solve",
            lambda m, b: jax.scipy.linalg.solve_triangular(jnp.tril(m), b, lower=True),
            (spd, a(6, 3)),
            1e-4,
        ),
        Case(
            "random bits and uniform",
            lambda k: (jr.bits(k, (7,)), jr.uniform(k, (5, 3)), jr.randint(jr.wrap_key_data(k), (9,), 0, 100)),
            (key,),
        ),
        Case(
            "random normal and dropout",
            lambda k, x: (jr.normal(k, (11,)), jnp.where(jr.bernoulli(jr.split(k)[0], 0.7, x.shape), x, 0)),
            (key, a(6, 8)),
            1e-4,
        ),
        Case(
            "random permutation and categorical",
            lambda k, x: (jr.permutation(k, 20), jr.categorical(k, x)),
            (key, a(5, 9)),
        ),
        Case("vmap of a matrix product", jax.vmap(lambda x, y: jnp.dot(x, y).sum(0), (0, 2)), (a(5, 3, 4), a(4, 6, 5))),
        Case(
            "jvp and hessian",
            lambda x: (jax.jvp(lambda x: jnp.sin(x) * x, (x,), (x,)), jax.hessian(lambda x: (x**3).sum())(x)),
            (a(7),),
        ),
        Case("training step of an MLP", mlp_step, (weights, a(16, 20), i(10, 16)), 1e-4),
        Case(
            "training step of a transformer", transformer_step, (model, zeros, zeros, np.float32(1), i(50, 2, 12)), 2e-3
        ),
    ]


def _check(case: Case) -> None:
    import jax

    import motet

    function = jax.jit(case.function)
    lowered = function.lower(*case.inputs)
    wanted = [np.asarray(value) for value in jax.tree.leaves(function(*case.inputs))]
    artifact = motet.compile(lowered.as_text().encode(), format="stablehlo", devices=DEVICES, cache=False)
    # Inputs that a function does not read are not arguments of the exported program.
    kept = sorted(lowered.compile()._executable._kept_var_idx)  # pyright: ignore
    leaves = jax.tree.leaves(case.inputs)
    results = motet.load(artifact, threads=1)(*(np.asarray(leaves[number]) for number in kept))
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(results) != len(wanted):
        raise Wrong(f"{len(results)} results, expected {len(wanted)}")
    for number, (got, want) in enumerate(zip(results, wanted, strict=True)):
        if found := difference(np.asarray(got), want, case.tolerance):
            raise Wrong(f"result {number}: {found}")


def difference(got: np.ndarray, want: np.ndarray, tolerance: float) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
    with np.errstate(all="ignore"):
        bad = ~((got == want) | ((got != got) & (want != want)))
        if want.dtype.kind in "fc":
            bad &= ~(np.abs(got - want) <= tolerance * scale)
    if not bad.any():
        return ""
    place = tuple(int(number) for number in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} elements differ; at {list(place)} {got[place]}, expected {want[place]}"
