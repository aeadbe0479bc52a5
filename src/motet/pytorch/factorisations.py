"""Refuses factorisations of matrices, which have no lowering, before the importer fails at their checks."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import re

import torch

from motet.errors import CompileError
from motet.pytorch.places import called, find_place

# The operators that remain of inv, pinv, solve, lstsq, cholesky, lu, qr, eig and svd after PyTorch's decompositions.
_FACTORISATION = re.compile(
    r"aten\._?(linalg_(inv|solve|lstsq|cholesky|lu|ldl|qr|eig|svd|pinv)|cholesky|lu_|geqrf|orgqr|ormqr)"
)


def refuse_factorisations(graph: torch.fx.Graph, name: str) -> None:
    """Raises CompileError for the first factorisation; `name` is the program's name in errors."""
    for node in graph.nodes:
        if node.op == "call_function" and _FACTORISATION.match(str(node.target)):
            raise CompileError(
                f"{called(node)}: factorisations of matrices, by which inverses and solutions of systems are computed, "
                "have no lowering; compute them by PyTorch before the call, and give their results as inputs",
                find_place(node, name),
            )
