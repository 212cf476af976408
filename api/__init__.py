"""The HTTP service that plans."""
