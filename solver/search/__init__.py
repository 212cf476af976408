"""The outer search: best-first branch and bound over the tree of configurations, with the proof of what it found."""
