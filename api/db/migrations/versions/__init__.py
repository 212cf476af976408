"""One file per change of the schema; each names the one before it."""
