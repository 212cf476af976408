"""One step's gradients, and three SGD steps' losses, norms and weights, equal the one-process model's."""

from dataclasses import replace

import pytest

from autoplan.spec.plan import seal
from tests.executor.equality import Case, assert_equal, compare_all
from tests.executor.plans import make_plan, optimizer
from tests.multiprocess import launch
from tests.tiny_models import gpt2_like, llama_like

LLAMA, TIED_LLAMA = llama_like(num_layers=2), llama_like(num_layers=2, tied=True)
GPT2, UNTIED_GPT2 = gpt2_like(num_layers=2), gpt2_like(num_layers=2, tied=False)
QWEN = llama_like(num_layers=2, qk_norm="head", qkv_bias=True, vocab_size=51)
DEEP = llama_like(num_layers=5, vocab_size=51, tied=True)


def case(name, model, *, recompute=None, **degrees):
    degrees = {"micro_batch": 2, **degrees}
    plan = make_plan(model, optimizer=optimizer(), **degrees)
    if recompute is not None:
        layers = tuple(replace(layer, recompute=kind) for layer, kind in zip(plan.layers, recompute, strict=True))
        plan = seal(replace(plan, layers=layers))
    return Case(name, plan)


DATA = [
    case("replicate", LLAMA, dp_replicate=2),
    case("replicate, tied", GPT2, dp_replicate=2),
    *(case(f"zero {z}", LLAMA, dp_shard=2, zero_stage=z) for z in (1, 2, 3)),
    *(case(f"zero {z}, tied, uneven rows", DEEP, dp_shard=2, zero_stage=z) for z in (1, 2, 3)),
    case("zero 3, full and selective", UNTIED_GPT2, dp_shard=2, zero_stage=3, recompute=("full", "selective")),
]
TENSOR = [
    case("tensor", LLAMA, tp=2),
    case("tensor, gpt2", GPT2, tp=2),
    case("tensor, uneven vocabulary, qk-norm, selective", QWEN, tp=2, recompute=("selective", "selective")),
    case("sequence", UNTIED_GPT2, tp=2, sequence_parallel=True),
    case("sequence, tied, full and selective", GPT2, tp=2, sequence_parallel=True, recompute=("full", "selective")),
    case("sequence, uneven vocabulary, qk-norm", QWEN, tp=2, sequence_parallel=True),
]
PIPELINE = [
    case("1f1b", LLAMA, pp=2),
    case("gpipe, tied", GPT2, pp=2, schedule="gpipe"),
    case("1f1b, tied, uneven stages", DEEP, pp=2, cuts=(0, 1, 5)),
    case("1f1b, one micro-batch", LLAMA, pp=2, micro_batch=8),
    case("gpipe, full and selective", UNTIED_GPT2, pp=2, schedule="gpipe", recompute=("full", "selective")),
    case("1f1b, embedding alone", LLAMA, pp=2, cuts=(0, 0, 2)),
]
FOUR = [
    *(case(f"dp x tp, zero {z}", QWEN, dp_shard=2, tp=2, zero_stage=z, sequence_parallel=z == 3) for z in (1, 3)),
    case("replicate x tp", GPT2, dp_replicate=2, tp=2),
    case("replicate x shard", LLAMA, dp_replicate=2, dp_shard=2, zero_stage=2, micro_batch=1),
    case("pp x tp", TIED_LLAMA, pp=2, tp=2, sequence_parallel=True, recompute=("selective", "full")),
    *(case(f"dp x pp, zero {z}", GPT2, dp_shard=2, pp=2, zero_stage=z, micro_batch=1) for z in (1, 2, 3)),
    case("replicate x pp, gpipe", LLAMA, dp_replicate=2, pp=2, schedule="gpipe"),
    case("pp 4 with two micro-batches", DEEP, pp=4, micro_batch=4, cuts=(0, 2, 3, 4, 5)),
]
EIGHT = [
    case("dp x tp x pp, zero 1", QWEN, dp_shard=2, tp=2, pp=2, zero_stage=1),
    case("dp x tp x pp, zero 3", GPT2, dp_shard=2, tp=2, pp=2, zero_stage=3, sequence_parallel=True, micro_batch=1),
    case("replicate x tp x pp", LLAMA, dp_replicate=2, tp=2, pp=2, recompute=("full", "selective")),
]


@pytest.mark.parametrize(
    ("cases", "num_ranks"),
    [
        pytest.param(DATA, 2, id="data"),
        pytest.param(TENSOR, 2, id="tensor"),
        pytest.param(PIPELINE, 2, id="pipeline"),
        pytest.param(FOUR, 4, id="four ranks"),
        pytest.param(EIGHT, 8, id="eight ranks"),
    ],
)
def test_plans_train_like_one_process(cases, num_ranks):
    assert_equal(launch(compare_all, cases, num_ranks=num_ranks, timeout_seconds=300))
