"""Raises loop nests over memrefs to linalg on tensors.

`raise_loops.py` has the order: `read.py` reads a nest into statements (`nest.py`), `simplify.py` merges their
dimensions, `unflatten.py` splits linearized axes, `order.py` checks that the statements may run one after the other,
`statement_shape.py` normalises each, and `emit.py` writes each as operations (`linalg_body.py`).
"""
