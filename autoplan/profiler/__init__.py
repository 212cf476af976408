"""Measures layers, links, contention and memory on real hardware; the result is a Profile."""
