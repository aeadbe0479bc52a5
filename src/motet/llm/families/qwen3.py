"""Qwen 3: Llama's layers, with normalised queries and keys. Its configuration and weights have Qwen 2's form."""

from motet.llm.families.qwen2 import read, tensors

__all__ = ["read", "tensors"]
