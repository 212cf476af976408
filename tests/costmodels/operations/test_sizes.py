import numpy as np
import pytest

from autoplan.spec import Configuration
from costmodels.operations import shares, sizes_of
from tests.costmodels.operations.cases import EAGER, FUSED, sizes_for
from tests.costmodels.problems import make_batch, make_problem
from tests.tiny_models import llama_like


def test_the_largest_rank_has_what_is_left_over():
    assert [shares(10, n) for n in (1, 2, 3, 4, 16)] == [10, 5, 4, 3, 1]
    assert shares(10, np.array([3, 5])).tolist() == [4, 2]


def test_context_parallelism_cuts_tokens_and_sequence_parallelism_what_is_outside():
    sizes = sizes_for(llama_like(), tp=4, cp=2, sequence_parallel=True)
    assert (sizes.tokens, sizes.outside) == (2 * 32, 16)
    assert (sizes.hidden_bytes, sizes.outside_bytes) == (64 * 16 * 2, 16 * 16 * 2)
    assert sizes_for(llama_like(), tp=4, cp=2).outside == 64


@pytest.mark.parametrize(
    ("precision", "stack", "element", "operand"),
    [("bf16", FUSED, 2, 2), ("fp32", FUSED, 4, 4), ("fp8", FUSED, 2, 1), ("fp8", EAGER, 2, 2), ("nvfp4", FUSED, 2, 1)],
)
def test_fused_layers_keep_what_they_cast(precision, stack, element, operand):
    sizes = sizes_for(llama_like(), precision=precision, stack=stack)
    assert (sizes.element, sizes.operand) == (element, operand)


def test_sizes_of_a_batch_are_arrays():
    problem = make_problem()
    batch = make_batch(problem, Configuration(tp=2, micro_batch=4), Configuration(cp=8))
    sizes = sizes_of(problem, batch)
    assert sizes.tokens.tolist() == [4 * 64, 8]
    assert sizes.hidden == problem.model.hidden_size
