"""Questions that take several searches: fronts, the fewest devices for a target, the best of several clusters."""
