"""torch-mlir's lowering of the dialect `torch` to linalg, which its pipeline
torch-backend-to-linalg-on-tensors-backend-pipeline runs too, with one pass more: a branch that only chooses between
tensors is canonicalised to an `arith.select` of them, which the pipeline's verifier refuses.
"""

from __future__ import annotations

_OF_FUNCTIONS = (
    "torch-restructure-non-constant-axes", "torch-fuse-quantized-ops", "convert-torch-to-tmtensor", "canonicalize",
    "convert-torch-to-linalg", "canonicalize", "convert-torch-to-scf", "convert-torch-to-arith",
    "convert-torch-to-tensor",
)  # fmt: skip
TO_LINALG = (
    f"func.func({','.join(_OF_FUNCTIONS)}),convert-torch-conversion-to-mlprogram,"
    "func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,func.func(canonicalize,torch-finalizing-backend-type-conversion),"
    "convert-elementwise-to-linalg,torch-verify-linalg-on-tensors-backend-contract,canonicalize,cse"
)
