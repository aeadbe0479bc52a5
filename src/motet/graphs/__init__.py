"""Graphs of work: what has to end before what, and how many queues that takes. Compiler and runtime use them."""
