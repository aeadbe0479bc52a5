"""The processes that compile: workers, the fork server, warm-up, and their lifetimes."""
