"""Measures layers, links, contention and memory on real hardware; the result is a Profile."""

from autoplan.profiler.node import profile_node

__all__ = ["profile_node"]
