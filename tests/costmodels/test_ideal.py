import numpy as np
import pytest

from autoplan.spec import Configuration
from benchmarks.configurations import draw_configurations
from costmodels.batch import Batch, even_cuts
from costmodels.evaluation import evaluate
from costmodels.ideal import ideal_seconds
from costmodels.least_costs import least_seconds
from tests.solver.problems import make_cluster, make_model, make_problem, make_profile
from tests.tiny_models import hybrid_like, latent_like, moe_like


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("make", [make_model, moe_like, latent_like, hybrid_like])
def test_counted_work_takes_longer_than_ideal_work(make, precision):
    problem = make_problem(
        model=make(), cluster=make_cluster(nodes=2, per_node=4), global_batch=16, precision=precision
    )
    batch = draw_configurations(problem, 300)
    ideal = ideal_seconds(problem, batch)
    assert (ideal > 0).all()
    assert (ideal <= least_seconds(problem, batch)).all()


def test_large_micro_batches_take_their_time_on_the_way():
    problem = make_problem(cluster=make_cluster(per_node=8), global_batch=64)
    batch = draw_configurations(problem, 300)
    large = batch.micro_batch > 8 * batch.tp * batch.cp
    ideal = ideal_seconds(problem, batch)
    assert large.any()
    assert ideal[large].min() > ideal.min() * 1.3
    assert ideal.min() == pytest.approx(ideal[~large].min())


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v"])
@pytest.mark.parametrize("micro_batch", [1, 4, 16])
def test_weight_gradients_may_come_later_on_all_ranks_at_once(schedule, micro_batch):
    """With one micro-batch a step is shorter than its way there and back with weight gradients."""
    for hidden in (64, 4096):
        model = make_model(layers=16, hidden=hidden, width=4 * hidden)
        problem = make_problem(model=model, cluster=make_cluster(per_node=8), global_batch=16, seq_len=4096)
        v = 2 if schedule == "zb-v" else 1
        configuration = Configuration(pp=8, schedule=schedule, virtual_stages=v, micro_batch=micro_batch)
        batch = Batch.of([configuration], even_cuts(16, np.array([8 * v])))
        step = evaluate(problem, batch).step_seconds
        assert (ideal_seconds(problem, batch) <= step).all()
        assert (least_seconds(problem, batch) <= step).all()


def test_nothing_is_said_of_measured_layers():
    cluster = make_cluster()
    problem = make_problem(cluster=cluster, profile=make_profile(cluster))
    assert not np.any(ideal_seconds(problem, draw_configurations(problem, 10)))
