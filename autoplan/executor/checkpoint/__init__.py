"""Checkpoints: written whole or not at all, found again by their index."""
