"""Loop nests over memrefs, raised to linalg on tensors.

`raise_loops.py` has the order: `read.py` makes statements of a nest (`nest.py`), `simplify.py` merges their
dimensions, `unflatten.py` takes apart axes that stand for several, `order.py` asks whether the statements may run one
after the other, `statement_shape.py` gives each the dimensions that it stores along, and `emit.py` writes each as
operations (`linalg_body.py`).
"""
