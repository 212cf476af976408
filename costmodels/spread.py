"""How far estimates of software that was never seen are off: fitted by calibration, kept with the coefficients."""

from dataclasses import field

from autoplan.spec.value import NonNegativeFloat, Positive, value

UNFITTED_RESIDUAL = 0.15

MOST_DEVIATIONS = 10.0
"""What is further off than this many deviations, or by such a one, are measurements that contradict each other."""


@value
class Spread:
    """A model of ln(measured / predicted): what software as a whole does differently, and what each run does.

    A framework on a device differs from the fitted coefficients along each direction
    (`costmodels.directions.DIRECTIONS`) with the standard deviation `between` gives; a run differs by `residual`
    besides. `quantile` standard deviations hold nine of ten runs of sources that were kept aside, and
    `learned_quantile` those of what is left after some runs of the source were learned from.
    """

    between: dict[str, NonNegativeFloat] = field(default_factory=dict)
    residual: Positive = UNFITTED_RESIDUAL
    quantile: Positive = 1.645
    learned_quantile: Positive = 1.645
