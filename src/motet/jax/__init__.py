"""Functions of JAX, compiled by Motet: the decorator `jit`.

    @motet.jax.jit
    def predict(weights, x):
        return jnp.tanh(x @ weights["w"]) + weights["b"]
"""

from motet.jax.function import CompiledFunction, jit

__all__ = ["CompiledFunction", "jit"]
