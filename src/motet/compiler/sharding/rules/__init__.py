"""How operations can be divided, one module for each kind; `listing.py` has their order."""
