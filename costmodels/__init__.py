"""Cost models: pure functions over arrays of configurations; no torch, no search, no I/O."""
