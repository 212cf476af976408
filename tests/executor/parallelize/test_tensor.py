from dataclasses import replace

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from autoplan.errors import PlanError
from autoplan.executor.parallelize.tensor import apply_tensor_parallel, common_sequence_parallel
from autoplan.models import build_model
from autoplan.spec.plan import LayerPlan
from tests.multiprocess import launch
from tests.tiny_models import gpt2_like, llama_like

LAYER = LayerPlan(recompute="none", reshard_after_forward=False, sequence_parallel=True)


def count_collectives(model, sequence_parallel):
    """Return the collectives of one layer's forward, and of its forward and backward."""
    mesh = init_device_mesh("cpu", (2,))
    block = build_model(model, layers=range(1), embedding=False, head=False)
    apply_tensor_parallel(block, mesh, sequence_parallel=sequence_parallel)
    hidden = torch.randn(2, 4 if sequence_parallel else 8, model.hidden_size, requires_grad=True)
    rope = block.rope_tables(8, hidden.device, hidden.dtype)
    with CommDebugMode() as forward:
        output = block(hidden, rope)
    with CommDebugMode() as backward:
        output.sum().backward()
    return [{str(op): n for op, n in mode.get_comm_counts().items()} for mode in (forward, backward)]


@pytest.mark.parametrize("model", [llama_like(), gpt2_like()], ids=["gated", "plain with biases"])
def test_a_layer_reduces_twice_each_way(model):
    for forward, backward in launch(count_collectives, model, False, num_ranks=2):
        assert forward == {"c10d_functional.all_reduce": 2}
        assert backward == {"c10d_functional.all_reduce": 2}


def test_sequence_parallelism_gathers_and_scatters_twice_each_way():
    for forward, backward in launch(count_collectives, llama_like(), True, num_ranks=2):
        pairs = {"c10d_functional.all_gather_into_tensor": 2, "c10d_functional.reduce_scatter_tensor": 2}
        assert forward == pairs
        assert backward == pairs


def test_layers_must_agree_on_sequence_parallelism():
    assert common_sequence_parallel((LAYER, LAYER))
    with pytest.raises(PlanError, match="layers differ in sequence_parallel"):
        common_sequence_parallel((LAYER, replace(LAYER, sequence_parallel=False)))
