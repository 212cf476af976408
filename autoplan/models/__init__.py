"""Torch modules of every family, built from a ModelSpec; they know nothing of parallelism."""
