"""Models that no solver solves soon: market splits (Cornuéjols and Dawande, 1999), sums that hardly add up."""

import numpy as np
import pulp

ROWS, SIZE = 8, 70


def rows():
    """Return the weights of every row; what is taken is to weigh half of all."""
    return np.random.default_rng(0).integers(0, 100, size=(ROWS, SIZE)).tolist()


def make_hard_model():
    """Return a mixed-integer programme."""
    model = pulp.LpProblem("hard", pulp.LpMinimize)
    taken = [model.add_variable(f"x{i}", 0, 1, pulp.LpInteger) for i in range(SIZE)]
    slacks = []
    for row, weights in enumerate(rows()):
        over, under = (model.add_variable(f"{name}{row}", 0) for name in ("over", "under"))
        half = sum(weights) // 2
        model += pulp.lpSum(w * x for w, x in zip(weights, taken, strict=True)) + under - over == half
        slacks += [over, under]
    model.setObjective(pulp.lpSum(slacks))
    return model


def harden(program):
    """Add the same to a constraint programme."""
    taken = [program.new_bool_var(f"taken{i}") for i in range(SIZE)]
    for weights in rows():
        program.add(sum(w * x for w, x in zip(weights, taken, strict=True)) == sum(weights) // 2)
