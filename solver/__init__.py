"""Search: the fastest configuration that fits, with a bound that proves it."""
