"""Loop nests over memrefs, raised to linalg on tensors.

`raise_loops.py` has the order: `read.py` makes statements of a nest (`nest.py`), `simplify.py` merges
their dimensions, `order.py` asks whether they may run one after the other, and `emit.py` writes each as operations.
"""
