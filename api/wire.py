"""What clients send and get: types of the HTTP face, apart from the rows of the database.

A plan, an estimate and a profile have their own published JSON forms (`autoplan.spec`) and are sent as they are.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    TypeAdapter,
    WithJsonSchema,
)

from api.db.rows import JobKind, JobState
from api.problems import Problem
from autoplan.spec import AUTOPLAN, Configuration, OptimizerKind, PrecisionKind
from autoplan.spec.plan import Objective, Solver
from autoplan.spec.value import Size
from solver.sweeps.front import Axis
from solver.sweeps.pareto import MOST_POINTS

LARGEST_SIZE: int = TypeAdapter(Size).json_schema()["maximum"]
_TEXT_OR_OBJECT = {"anyOf": [{"type": "string"}, {"type": "object"}]}

ModelArgument = Annotated[
    Any,
    WithJsonSchema(_TEXT_OR_OBJECT),
    Field(description="A preset name, a Hugging Face config.json object, or an autoplan model object."),
]
ClusterArgument = Annotated[
    Any,
    WithJsonSchema(_TEXT_OR_OBJECT),
    Field(
        description="DEVICE:NODESxPER_NODE[+...], a cluster object, or the id of a stored profile. "
        "By default the newest profile's cluster, else the service's own machine."
    ),
]
ClustersArgument = Annotated[
    Any,
    WithJsonSchema({"anyOf": [*_TEXT_OR_OBJECT["anyOf"], {"type": "array", "items": _TEXT_OR_OBJECT, "maxItems": 16}]}),
    Field(
        description="DEVICE:NODESxPER_NODE[+...], a cluster object, or the id of a stored profile; of a list of them "
        "the best is taken. By default the newest profile's cluster, else the service's own machine."
    ),
]

StackArgument = Annotated[str, Field(description="The software whose speed is predicted, by the name of a preset.")]


def _pin(given: Any) -> Any:
    """Bound whole numbers as the spec does; which values a field has is for the search's options to say."""
    if isinstance(given, int) and given > LARGEST_SIZE:
        raise ValueError(f"{given} is more than {LARGEST_SIZE}")
    return given


def _condition(given: str) -> str:
    for digits in re.findall("[0-9]+", given):
        _pin(int(digits))
    return given


PinValue = Annotated[
    Any, AfterValidator(_pin), WithJsonSchema({"type": ["integer", "string", "boolean"], "maximum": LARGEST_SIZE})
]
ConditionText = Annotated[str, Field(max_length=255), AfterValidator(_condition)]


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WorkloadIn(_Given):
    """The workload; what is left out gets a default, which the answer states."""

    global_batch: Size | None = Field(default=None, description="Sequences per optimizer step.")
    seq_len: Size | None = Field(default=None, description="Tokens per sequence.")
    optimizer: OptimizerKind | None = None
    precision: PrecisionKind | None = None


class EstimateOptionsIn(_Given):
    """What else an estimate depends on."""

    stack: StackArgument = AUTOPLAN.name


class OptionsIn(_Given):
    """The limits of a search."""

    fix: dict[str, PinValue] = Field(
        default={}, description="Pinned fields of the configuration, cuts, layers[0:4].recompute, stages[0].layers."
    )
    forbid: list[ConditionText] = Field(default=[], max_length=64, description="Regions to leave out, such as 'cp>1'.")
    top: int = Field(default=3, ge=0, le=100, description="How many runners-up to list.")
    time_limit_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="When to stop with the best plan so far."
    )
    runnable_only: bool = Field(default=False, description="Leave out what `autoplan run` cannot run here.")
    stack: StackArgument = AUTOPLAN.name
    objective: Objective = Field(default="throughput", description="What the best plan has least of.")
    solver: Solver = Field(
        default="dp", description="What chooses cuts and modes of layers; each is exact, dp is the fastest."
    )
    target_tokens_per_second: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Plan for the fewest nodes of the cluster that reach this."
    )
    pareto: Axis | None = Field(
        default=None, description="Answer with a front of plans: step time against memory, or cost over node counts."
    )
    points: int = Field(default=MOST_POINTS, ge=1, le=100, description="About how many a front against memory has.")


class PlanRequest(_Given):
    """A planning request; only the model is required."""

    model: ModelArgument
    cluster: ClustersArgument = None
    workload: WorkloadIn = WorkloadIn()
    options: OptionsIn = OptionsIn()


class BareModel(RootModel[dict[str, Any]]):
    """A model alone: a Hugging Face config.json object or an autoplan model object."""

    model_config = ConfigDict(frozen=True)


def _form(body: Any) -> str:
    return "plan-request" if isinstance(body, dict) and "model" in body else "bare-model"


PlanBody = Annotated[
    Annotated[PlanRequest, Tag("plan-request")] | Annotated[BareModel, Tag("bare-model")],
    Discriminator(_form),
]
"""A body with the key `model` is a request, any other a model."""


class EstimateRequest(_Given):
    """One configuration whose cost is asked for."""

    model: ModelArgument
    cluster: ClusterArgument = None
    workload: WorkloadIn = WorkloadIn()
    configuration: Annotated[dict[str, Any], WithJsonSchema(TypeAdapter(Configuration).json_schema())] = Field(
        description="The degrees and choices; what is left out is at its default."
    )
    options: EstimateOptionsIn = EstimateOptionsIn()


class ProgressOut(BaseModel):
    """How far a search is: the best plan's step time; its value and the bound in the unit of the objective.

    `gap` is (incumbent - bound) / incumbent.
    """

    phase: str
    incumbent_seconds: float | None
    incumbent: float | None
    bound: float | None
    gap: float | None
    explored: int
    pruned: int


class JobOut(BaseModel):
    """One search, for a plan or a front; `plan_id` is the id of either.

    `defaults` are the values that the request left to the service, `notices` what it passed over.
    """

    id: str
    kind: JobKind
    state: JobState
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    defaults: dict[str, Any]
    notices: list[str]
    progress: ProgressOut | None
    plan_id: str | None
    problem: Problem | None
    links: dict[Literal["self", "plan", "front"], str]


class PlanItem(BaseModel):
    """What the list shows of a plan."""

    id: str
    created_at: datetime
    model: str
    cluster: str
    step_seconds: float
    runnable: bool
    links: dict[Literal["self"], str]


class PlanList(BaseModel):
    """Plans, newest first; `next` is where the older ones are."""

    plans: list[PlanItem]
    next: str | None


class ProfileItem(BaseModel):
    """What the list shows of a profile; its `id` can be given as a cluster."""

    id: str
    created_at: datetime
    cluster: str
    num_devices: int
    measured_at: str
    links: dict[Literal["self"], str]


class ProfileList(BaseModel):
    """Profiles, newest first; `next` is where the older ones are."""

    profiles: list[ProfileItem]
    next: str | None


class ModelItem(BaseModel):
    """A preset that can be given as a model."""

    name: str
    family: str
    num_parameters: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int


class ModelList(BaseModel):
    """Model presets."""

    models: list[ModelItem]


class DeviceItem(BaseModel):
    """A device that a cluster shorthand can name."""

    slug: str
    kind: Literal["cuda", "cpu"]
    memory_bytes: int
    peak_flops: dict[str, float]
    devices_per_node: int


class ClusterItem(BaseModel):
    """A preset that can be given as a cluster."""

    name: str
    num_nodes: int
    num_devices: int
    devices: list[str]


class ClusterList(BaseModel):
    """Cluster presets, the devices of the shorthand, and what a request without a cluster is planned for."""

    clusters: list[ClusterItem]
    devices: list[DeviceItem]
    default: str


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]
    version: str
