"""Back ends, which generate code for kernels, behind one protocol (`backend.py`)."""
