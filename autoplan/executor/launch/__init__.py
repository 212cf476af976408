"""Starting a run: checks before anything starts, torchrun and its ranks, and the cause when one fails."""
