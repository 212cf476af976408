"""A plan in training: one call is one optimizer step of all ranks."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from autoplan.executor import optim
from autoplan.executor.mesh import Layout, build_layout
from autoplan.executor.parallelize.data import apply_data_parallel
from autoplan.executor.parallelize.loss import loss_context
from autoplan.executor.parallelize.materialize import materialize
from autoplan.executor.parallelize.pipeline import Pipeline, SingleStage, build_pipeline, sum_tied_gradients
from autoplan.executor.parallelize.precision import choose_precision
from autoplan.executor.parallelize.recompute import apply_recompute
from autoplan.executor.parallelize.tensor import apply_tensor_parallel, common_sequence_parallel
from autoplan.models import Decoder, build_model
from autoplan.spec.plan import Dtype, Plan

TIED_WEIGHT = "embedding.token.weight"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step reports, the same on all ranks; `grad_norm` is before clipping."""

    loss: float
    grad_norm: float
    learning_rate: float


@dataclass(slots=True)
class Training:
    """The stage of a plan that this rank trains, its optimizer, and how many steps it has done."""

    plan: Plan
    layout: Layout
    decoder: Decoder
    pipeline: SingleStage | Pipeline
    optimizer: torch.optim.Optimizer
    steps_done: int = 0

    @classmethod
    def build(cls, plan: Plan, *, seed: int, dtype: Dtype | None = None) -> "Training":
        """Build this rank's part of `plan` with the initial weights of `seed`.

        Needs the default process group. `dtype` replaces all types of the plan's precision. Raises PlanError when
        the plan is for another number of ranks.
        """
        layout = build_layout(plan)
        precision = choose_precision(plan.precision, override=dtype)
        decoder = _build_stage(plan, layout, precision.master)
        if layout.size("tp") > 1:
            sequence_parallel = common_sequence_parallel(plan.layers)
            apply_tensor_parallel(decoder, layout.mesh["tp"], sequence_parallel=sequence_parallel)
        apply_recompute(decoder, plan.layers)
        sync = apply_data_parallel(
            decoder, layout, plan.layers, zero_stage=plan.sharding.zero_stage, precision=precision
        )
        materialize(decoder, seed=seed, device=layout.device)
        return cls(
            plan=plan,
            layout=layout,
            decoder=decoder,
            pipeline=build_pipeline(plan, layout, decoder, sync, dtype=precision.compute),
            optimizer=optim.build_optimizer(dict(decoder.named_parameters()), plan.optimizer),
        )

    @property
    def data_rank(self) -> int:
        """The part of the global batch that this rank reads."""
        return self.layout.data_rank

    @property
    def data_ranks(self) -> int:
        """The number of parts of the global batch."""
        return self.layout.data_ranks

    def step(self, tokens: Tensor) -> StepResult:
        """Do one optimizer step on this rank's sequences, an int64 tensor (global_batch / data_ranks, seq_len + 1).

        The loss is the mean next-token cross entropy over the global batch. All ranks of a data rank take the same
        tokens.
        """
        loss = self.accumulate(tokens)
        parameters = dict(self.decoder.named_parameters())
        squares = optim.local_squared_norm(self._counted(parameters), self.layout)
        loss_sum, squared_norm = optim.sum_over_ranks(loss, squares)
        grad_norm = squared_norm**0.5
        optim.clip_gradients(parameters, grad_norm, limit=self.plan.optimizer.max_grad_norm)
        rate = optim.learning_rate(self.plan.optimizer, self.steps_done)
        optim.set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps_done += 1
        ranks = self.layout.mesh.size() // self.layout.size("pp")
        return StepResult(loss=loss_sum / ranks, grad_norm=grad_norm, learning_rate=rate)

    def accumulate(self, tokens: Tensor) -> Tensor:
        """Leave the gradients of the global batch in the parameters; return the local mean loss (last stage) or 0."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        with loss_context(self.layout.size("tp")):
            loss = self.pipeline.run(inputs, targets)
        parameters = dict(self.decoder.named_parameters())
        optim.settle_gradients(parameters)
        if self._has_tied_copies and TIED_WEIGHT in parameters:
            gradient = parameters[TIED_WEIGHT].grad
            assert gradient is not None
            sum_tied_gradients(optim.local_part(gradient), self.layout)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimizer state and step count under global names, for torch.distributed.checkpoint.

        The tensors are the live ones: loading into them loads the training, but for the step count, which
        `load_state_dict` takes.
        """
        parameters = dict(self.decoder.named_parameters())
        return {
            "model": {name: parameter.detach() for name, parameter in parameters.items()},
            "optimizer": optim.optimizer_state(self.optimizer, parameters, step=self.steps_done),
            "step": torch.tensor(self.steps_done),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, here or in another layout resharded to this one."""
        own = self.state_dict()
        for name, tensor in own["model"].items():
            tensor.copy_(state["model"][name])
        for name, moments in own["optimizer"].items():
            for key, tensor in moments.items():
                tensor.copy_(state["optimizer"][name][key])
        self.steps_done = int(state["step"])
        optim.set_step(self.optimizer, self.steps_done)

    @property
    def _has_tied_copies(self) -> bool:
        return self.plan.model.tied_embeddings and self.layout.size("pp") > 1

    def _counted(self, parameters: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        """Leave out the last stage's copy of a tied weight."""
        if not self._has_tied_copies or self.layout.coordinate("pp") == 0:
            return parameters
        return {name: parameter for name, parameter in parameters.items() if name != TIED_WEIGHT}


def _build_stage(plan: Plan, layout: Layout, dtype: torch.dtype) -> Decoder:
    (chunk,) = plan.stages[layout.coordinate("pp")].chunks
    layers = range(chunk.first_layer, chunk.first_layer + chunk.num_layers)
    with torch.device("meta"):
        decoder = build_model(plan.model, layers=layers, embedding=chunk.embedding, head=chunk.head)
    return decoder.to(dtype)
