"""The fitted coefficients: few, physical, the same for every model and table; `autoplan calibrate` writes them.

Each is a share of a nominal rate, a factor on a nominal time, or seconds. Hardware generations differ in how much of
their nominal rates training reaches, so products, attention and memory have a factor for each architecture that was
measured; an architecture that was not takes 1.
"""

from dataclasses import field, replace
from functools import cache
from importlib.resources import files

from autoplan.spec import Problem
from autoplan.spec.codec import from_json
from autoplan.spec.profile import Contention
from autoplan.spec.value import NonNegativeFloat, Positive, value
from costmodels.hardware import Hardware
from costmodels.links import LinkRates
from costmodels.pricing import Rates
from costmodels.spread import Spread

FILE_NAME = "coefficients.json"
PRODUCTS = ("products", "low_products", "grouped_products", "low_grouped_products")
RATES = (*PRODUCTS, "attention", "memory", "optimizer", "intra", "inter")
"""The shares of nominal rates; each may have a factor for an architecture."""
HIDDEN = ("hidden_data", "hidden_tensor", "hidden_context", "hidden_expert")
AT_MOST_ALL = frozenset({*RATES, *HIDDEN}) - {"optimizer"}
"""What cannot be more than 1; an optimizer's step may find a part of its bytes in the cache."""
COMMUNICATION_SLOWDOWN = 1.3
"""Communication takes longer while compute runs beside it; measured per machine by a profile."""


@value
class Coefficients:
    """What calibration fits.

    `products`, `low_products` (8 and 4 bits), `grouped_products` and `low_grouped_products` (experts), `attention`,
    `memory`, `optimizer`, `intra` (NVLink) and `inter` (network) are shares of nominal rates; `latency` and `host`
    factors on nominal seconds; `contention` is κ of two kernels side by side; `hidden_data`, `hidden_tensor`,
    `hidden_context` and `hidden_expert` are the shares of communication that can hide where the stack overlaps it;
    `step_seconds` are spent once a step; `jitter` is the share of the step lost for each doubling of the nodes.
    `architectures` has factors by coefficient and architecture (``products.hopper``), `spread` says how far estimates
    made with all of this are off.
    """

    products: Positive = 0.9
    low_products: Positive = 0.85
    grouped_products: Positive = 0.85
    low_grouped_products: Positive = 0.7
    attention: Positive = 0.9
    memory: Positive = 0.8
    optimizer: Positive = 0.8
    intra: Positive = 0.8
    inter: Positive = 0.8
    latency: Positive = 1.0
    host: Positive = 1.0
    contention: Positive = 1.15
    hidden_data: Positive = 0.9
    hidden_tensor: Positive = 0.5
    hidden_context: Positive = 0.9
    hidden_expert: Positive = 0.5
    step_seconds: NonNegativeFloat = 0.01
    jitter: NonNegativeFloat = 0.002
    architectures: dict[str, Positive] = field(default_factory=dict)
    spread: Spread = field(default_factory=Spread)

    def of(self, name: str, architecture: str | None) -> float:
        """Return a coefficient with its architecture's factor."""
        base: float = getattr(self, name)
        return base * self.architectures.get(f"{name}.{architecture}", 1.0)

    def scaled(self, name: str, factor: float) -> "Coefficients":
        """Return the coefficients with `name` multiplied by `factor`."""
        return replace(self, **{name: getattr(self, name) * factor})


@cache
def fitted_coefficients() -> Coefficients:
    """Return the coefficients that come with the package."""
    text = files("costmodels").joinpath(FILE_NAME).read_text(encoding="utf-8")
    return from_json(Coefficients, text, where=FILE_NAME)


def resolve_rates(problem: Problem, hardware: Hardware, coefficients: Coefficients) -> Rates:
    """Return the rates of a problem: fitted ones, or 1 for what its profile has measured.

    On CPUs every collective returns when it is done, so nothing hides, and the host is the device.
    """
    stack, cpu = problem.stack, hardware.kind == "cpu"
    if problem.profile is not None or cpu:
        return _measured_rates(problem, hardware, coefficients)

    def of(name: str) -> float:
        return coefficients.of(name, hardware.architecture)

    kappa = Contention(compute_slowdown=coefficients.contention, communication_slowdown=COMMUNICATION_SLOWDOWN)
    return Rates(
        products=of("products"),
        low_products=of("low_products"),
        grouped_products=of("grouped_products"),
        low_grouped_products=of("low_grouped_products"),
        attention=of("attention"),
        memory=of("memory"),
        optimizer=of("optimizer"),
        host_seconds=0.0 if stack.cuda_graph else stack.host_seconds * coefficients.host,
        routed_host_seconds=stack.host_seconds * coefficients.host,
        links=LinkRates(intra=of("intra"), inter=of("inter"), latency=coefficients.latency),
        hidden_data=coefficients.hidden_data * stack.overlap_data,
        hidden_gather=coefficients.hidden_data * stack.overlap_gather,
        hidden_tensor=coefficients.hidden_tensor * stack.overlap_tensor,
        hidden_context=coefficients.hidden_context * stack.overlap_context,
        hidden_expert=coefficients.hidden_expert * stack.overlap_expert,
        contention=kappa,
        step_seconds=coefficients.step_seconds,
        jitter=coefficients.jitter,
    )


def _measured_rates(problem: Problem, hardware: Hardware, coefficients: Coefficients) -> Rates:
    """Return rates of 1: a profile's figures, and a CPU preset's, are what is reached."""
    stack, cpu = problem.stack, hardware.kind == "cpu"
    hides = 0.0 if cpu else 1.0
    memory = 1.0 if problem.profile is not None else coefficients.memory
    return Rates(
        products=1.0,
        low_products=1.0,
        grouped_products=1.0,
        low_grouped_products=1.0,
        attention=1.0,
        memory=memory,
        optimizer=memory,
        host_seconds=0.0 if cpu or stack.cuda_graph else stack.host_seconds,
        routed_host_seconds=0.0 if cpu else stack.host_seconds,
        links=LinkRates(),
        hidden_data=hides * stack.overlap_data,
        hidden_gather=hides * stack.overlap_gather,
        hidden_tensor=hides * stack.overlap_tensor,
        hidden_context=hides * stack.overlap_context,
        hidden_expert=hides * stack.overlap_expert,
        contention=hardware.contention,
        step_seconds=0.0,
        jitter=0.0,
    )
