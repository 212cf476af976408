"""Search: the best plan that fits, with a bound that proves it.

- `search`: best-first branch and bound over configurations;
- `stages`: the best stage cuts and modes of layers of one configuration;
- `proof`: the answer derived again by listing everything;
- `reasons`: why a plan is what it is, and why nothing fits;
- `sweeps`: questions that take several searches.

What they share: `options` and `pins` limit a search, `objectives` say what is best, `result` is what a search returns
and `assemble` makes a plan of it.
"""
