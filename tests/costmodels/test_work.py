"""Work counted with products at 1 FLOP/s, so that nominal seconds are FLOPs."""

from dataclasses import fields, replace

import numpy as np
import pytest

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.attention_rates import BACKWARD_FLOPS, attention_shares
from costmodels.hardware import resolve_hardware
from costmodels.links import LinkWork, resolve_links
from costmodels.matmul import MeasuredMatmul
from costmodels.operations import block_operations
from costmodels.placement import place
from costmodels.work import LAUNCHES_OF_COLLECTIVE, PassWork, count_work, recomputed_share
from tests.costmodels.operations.cases import flops, moved, named, sizes_for
from tests.costmodels.problems import (
    families,
    make_batch,
    make_cluster,
    make_group,
    make_problem,
    one,
    random_configurations,
)
from tests.tiny_models import llama_like, moe_like

ONE_FLOP_PER_SECOND = MeasuredMatmul(log_sizes=np.zeros((1, 3)), log_rates=np.zeros(1))
PRODUCTS = ("products", "low_products", "grouped_products", "low_grouped_products")
ARRAYS = (*PRODUCTS, "attention", "memory", "kernels", "routed_kernels")
BANDWIDTH = 2e12
UNFUSED = replace(AUTOPLAN, attention="unfused")
LAYER, EMBEDDING, HEAD, STAGE = 0, -3, -2, -1


def count(problem, batch=None, **configuration):
    hardware = resolve_hardware(problem)
    return count_work(
        problem,
        one(problem, **configuration) if batch is None else batch,
        hardware=hardware,
        matmul=ONE_FLOP_PER_SECOND,
        links=resolve_links(problem, hardware),
    )


def tiny(model=None, **changes):
    return make_problem(model or llama_like(), **changes)


def operations(problem, **changes):
    model = problem.model
    sizes = sizes_for(model, stack=problem.stack, precision=problem.workload.precision, micro_batch=1, **changes)
    return block_operations(sizes, model, model.blocks[0])


def flat(work):
    """Every array of a pass by name."""
    found = {}
    for field in fields(work):
        value = getattr(work, field.name)
        inner = flat(value) if isinstance(value, LinkWork) else {"": value}
        found |= {f"{field.name}.{name}": array for name, array in inner.items()}
    return found


def test_forward_input_gradient_and_weight_gradient_cost_the_same_flops():
    problem = tiny()
    work = count(problem)
    core = named(operations(problem), "core").core.flops
    products = flops(operations(problem)) - core
    for part in (work.forward, work.backward, work.weight):
        assert part.products[0, LAYER] == pytest.approx(products)
    assert work.forward.products[0, HEAD] == pytest.approx(2 * 64 * 16 * 50)
    assert (work.forward.products[0, [EMBEDDING, STAGE]] == 0).all()


def test_products_of_two_activations_have_both_gradients_in_the_backward():
    problem = tiny(stack=UNFUSED)
    work = count(problem)
    scores = flops([named(operations(problem), "core")])
    weights = flops(operations(problem)) - scores
    assert work.forward.products[0, LAYER] == pytest.approx(weights + scores)
    assert work.backward.products[0, LAYER] == pytest.approx(weights + 2 * scores)
    assert work.weight.products[0, LAYER] == pytest.approx(weights)
    assert work.forward.attention[0, LAYER] == 0


@pytest.mark.parametrize("kernel", ["flash1", "flash2", "flash3", "cudnn"])
def test_attention_runs_at_its_kernel_s_share_of_the_products_rate(kernel):
    cluster = make_cluster(make_group(architecture="ampere"))
    problem = tiny(cluster=cluster, stack=replace(AUTOPLAN, attention=kernel))
    work = count(problem)
    core = named(operations(problem), "core").core
    forward, backward = attention_shares(kernel, "ampere", seq_len=64, head_dim=4)
    rate = resolve_hardware(problem).matmul_flops
    assert work.forward.attention[0, LAYER] == pytest.approx(core.flops / (rate * forward))
    assert work.backward.attention[0, LAYER] == pytest.approx(BACKWARD_FLOPS * core.flops / (rate * backward))
    assert work.weight.attention[0, LAYER] == 0


def test_bytes_and_launches_are_those_of_the_operations():
    problem = tiny()
    work = count(problem)
    forward, backward = moved(operations(problem))
    assert work.forward.memory[0, LAYER] == pytest.approx(forward / BANDWIDTH)
    assert work.backward.memory[0, LAYER] == pytest.approx(backward / BANDWIDTH)
    assert work.weight.memory[0, LAYER] == 0
    linear = 4  # queries, keys and values; output; up; down
    assert work.forward.kernels[0, LAYER] == linear + sum(op.forward_kernels for op in operations(problem))
    assert work.backward.kernels[0, LAYER] == linear + sum(op.backward_kernels for op in operations(problem))
    assert work.weight.kernels[0, LAYER] == linear
    assert work.forward.routed_kernels[0, LAYER] == 0


def launches(problem, **configuration):
    """What is launched of a layer forward, backward, and for weights; of these what is routed."""
    work = count(problem, **configuration)
    passes = (work.forward, work.backward, work.weight)
    whole = [float(p.kernels[0, LAYER] + p.routed_kernels[0, LAYER]) for p in passes]
    return np.array(whole), np.array([float(p.routed_kernels[0, LAYER]) for p in passes])


def test_software_that_goes_through_its_experts_launches_for_each():
    """4 experts, two products each, at half a launch."""
    one_by_one = replace(AUTOPLAN, grouped_kernel=False)
    grouped, each = (launches(tiny(moe_like(), stack=stack))[0] for stack in (AUTOPLAN, one_by_one))
    assert (each - grouped).tolist() == [2.0, 2.0, 2.0]
    cluster = make_cluster(make_group(1, 2))
    split = [
        launches(tiny(moe_like(), cluster=cluster, stack=s), ep=2, dp_replicate=2)[0] for s in (AUTOPLAN, one_by_one)
    ]
    assert (split[1] - split[0]).tolist() == [0.0, 0.0, 0.0], "two experts a rank"


def test_block_scaled_factors_are_put_in_order_and_cast_expert_by_expert():
    """Of a dense layer's four products; of a mixture's two and of those of 4 experts at half a launch."""
    more = launches(tiny(precision="mxfp8"))[0] - launches(tiny(precision="fp8"))[0]
    assert more.tolist() == [4.0, 4.0, 4.0]
    stack = replace(AUTOPLAN, grouped_kernel=False)
    more = launches(tiny(moe_like(), precision="mxfp8", stack=stack))[0]
    more -= launches(tiny(moe_like(), precision="fp8", stack=stack))[0]
    assert more.tolist() == [2 + 4 + 2, 2 + 4 + 2, 2 + 4], "scales, and casts that were one kernel each"


def test_what_is_routed_has_no_size_that_a_graph_could_hold_unless_rows_are_capped():
    whole, routed = launches(tiny(moe_like()))
    assert (routed > 0).all()
    assert (routed < whole).all()
    model = moe_like()
    (block,) = model.blocks
    capped = replace(block, feed_forward=replace(block.feed_forward, capacity_factor=1.0))
    assert launches(tiny(replace(model, blocks=(capped,))))[1].tolist() == [0.0, 0.0, 0.0]


def test_eight_bits_for_linear_layers_and_sixteen_for_logits_and_scores():
    problem = tiny(stack=UNFUSED, precision="fp8")
    work = count(problem)
    scores = flops([named(operations(problem), "core")])
    assert work.forward.products[0, LAYER] == pytest.approx(scores)
    assert work.forward.low_products[0, LAYER] == pytest.approx(flops(operations(problem)) - scores)
    assert work.forward.low_products[0, HEAD] == 0
    assert work.forward.products[0, HEAD] == pytest.approx(2 * 64 * 16 * 50)


@pytest.mark.parametrize(("pointwise", "bytes_each"), [("eager", 2 + 2), ("fused", 2)])
def test_casts_to_eight_bits(pointwise, bytes_each):
    """Each product's input, and its output's gradient, is written in two layouts; read before unless fused."""
    stack = replace(AUTOPLAN, pointwise=pointwise)
    low, plain = (count(tiny(stack=stack, precision=precision)) for precision in ("fp8", "bf16"))
    inputs = 64 * (16 + 16 + 16 + 24)  # of qkv, output, up and down
    outputs = 64 * (32 + 16 + 48 + 16)
    for name, elements in (("forward", inputs), ("backward", outputs), ("weight", 0)):
        cast = getattr(low, name).memory[0, LAYER] - getattr(plain, name).memory[0, LAYER]
        assert cast == pytest.approx(elements * bytes_each / BANDWIDTH), name
        more = getattr(low, name).kernels[0, LAYER] - getattr(plain, name).kernels[0, LAYER]
        assert more == (4 if elements else 0)


def test_experts_are_grouped_products():
    problem = tiny(moe_like())
    work, low = count(problem), count(tiny(moe_like(), precision="fp8"))
    experts = 2 * (2 * 64 * 3 * 16 * 24)
    assert work.forward.grouped_products[0, LAYER] == pytest.approx(experts)
    assert work.weight.grouped_products[0, LAYER] == pytest.approx(experts)
    assert low.forward.low_grouped_products[0, LAYER] == pytest.approx(experts)
    assert low.forward.grouped_products[0, LAYER] == 0
    assert low.forward.products[0, LAYER] == pytest.approx(2 * 64 * 16 * 4), "the router stays in sixteen bits"


def test_recompute_repeats_nothing_all_or_what_the_software_redoes():
    problem = tiny(stack=replace(UNFUSED, stops_early=False))
    none, selective, full = (count(problem, recompute=mode) for mode in ("none", "selective", "full"))
    assert all((array == 0).all() for array in flat(none.again).values())
    for name in ARRAYS:
        assert getattr(full.again, name)[0, LAYER] == getattr(full.forward, name)[0, LAYER], name
        assert (getattr(full.again, name)[0, EMBEDDING:] == 0).all(), "only layers are recomputed"
    redone = [op for op in operations(problem) if op.tag in {"norms", "pointwise", "core_attention"}]
    assert selective.again.products[0, LAYER] == pytest.approx(flops([named(redone, "core")]))
    assert selective.again.memory[0, LAYER] == pytest.approx(moved(redone)[0] / BANDWIDTH)


def test_selective_recompute_is_the_software_s_own():
    problem = tiny(stack=replace(UNFUSED, redone=("core_attention",)))
    again = count(problem, recompute="selective").again
    assert again.memory[0, LAYER] == pytest.approx(moved([named(operations(problem), "core")])[0] / BANDWIDTH)
    flash = tiny(stack=replace(AUTOPLAN, redone=("core_attention",)))
    assert count(flash, recompute="selective").again.attention[0, LAYER] == 0, "a fused core is not redone"


def test_every_second_product_is_half_of_them():
    problem = tiny(stack=replace(UNFUSED, redone=("alternate_products",)))
    again = count(problem, recompute="selective").again
    products = [op for op in operations(problem) if op.products and op.name != "core"]
    assert again.products[0, LAYER] == pytest.approx(flops(products) / 2)
    with_norms = tiny(stack=replace(UNFUSED, redone=("norms", "alternate_products")))
    norms = [op for op in operations(problem) if op.tag == "norms"]
    more = count(with_norms, recompute="selective").again
    assert more.products == pytest.approx(again.products)
    assert more.memory[0, LAYER] == pytest.approx(moved(norms)[0] / BANDWIDTH)


def test_redoing_feed_forwards_repeats_their_products():
    problem = tiny(stack=replace(AUTOPLAN, redone=("feed_forward",)))
    assert count(problem, recompute="selective").again.products[0, LAYER] > 0


def test_redoing_norms_gathers_their_output_again():
    """The gathered inputs of products are not kept then, so two of the layer's collectives are repeated."""
    problem = tiny(cluster=make_cluster(make_group(1, 4)))
    work = count(problem, tp=4, sequence_parallel=True, recompute="selective")
    gathers = work.forward.tensor.seconds()[0, LAYER] / 2
    assert work.again.tensor.seconds()[0, LAYER] == pytest.approx(gathers)


def test_a_scan_over_context_parallel_ranks_exchanges_heads_for_tokens():
    """FORMULAS §4: five all-to-alls before it and one after, or the passing of states."""
    problem = tiny(families()["hybrid"], cluster=make_cluster(make_group(1, 2)))
    assert count(problem, cp=2).forward.context.seconds()[0, LAYER] > 0


@pytest.mark.parametrize(("layers", "share"), [(0, 1.0), (3, 1.0), (1, 1 / 3)])
def test_recompute_of_some_layers_repeats_their_share(layers, share):
    problem = tiny()
    for mode in ("selective", "full"):
        some = count(problem, recompute=mode, recompute_layers=layers).again
        every = count(problem, recompute=mode).again
        for name in ARRAYS:
            assert getattr(some, name) == pytest.approx(share * getattr(every, name)), name
    assert recomputed_share(problem, one(problem, recompute_layers=layers)).tolist() == [0.0]


def test_full_recompute_may_stop_before_the_last_product():
    """Nothing needs what the projection down puts out: neither it nor what follows is done again."""
    cluster = make_cluster(make_group(1, 2))
    work = count(tiny(cluster=cluster), tp=2, recompute="full")
    down = 2 * 64 * 24 / 2 * 16
    assert work.forward.products[0, LAYER] - work.again.products[0, LAYER] == pytest.approx(down)
    assert work.forward.kernels[0, LAYER] - work.again.kernels[0, LAYER] == 1 + LAUNCHES_OF_COLLECTIVE + 1
    kept = count(tiny(cluster=cluster, stack=replace(AUTOPLAN, dropout=True)), tp=2, recompute="full")
    assert kept.again.products[0, LAYER] == kept.forward.products[0, LAYER], "the last mask is needed"


def test_full_recompute_repeats_the_collectives_of_the_forward():
    whole = replace(AUTOPLAN, stops_early=False)
    work = count(tiny(cluster=make_cluster(make_group(2, 4)), stack=whole), tp=4, recompute="full")
    repeated, forward = work.again.tensor, work.forward.tensor
    assert forward.intra_seconds[0, LAYER] > 0
    assert repeated.intra_seconds[0, LAYER] == forward.intra_seconds[0, LAYER]
    assert (repeated.intra_seconds[0, EMBEDDING:] == 0).all()


@pytest.mark.parametrize(("tp", "where"), [(4, "intra_seconds"), (8, "inter_seconds")])
def test_tensor_parallelism_is_priced_on_the_links_that_it_crosses(tp, where):
    """Two nodes of four devices: 8 ranks reach over the network, 4 do not."""
    problem = make_problem(cluster=make_cluster(make_group(2, 4)))
    found = count(problem, tp=tp).forward.tensor
    assert getattr(found, where)[0, LAYER] > 0
    assert (found.inter_seconds[0, LAYER] > 0) == (tp == 8)


def test_collectives_are_summed_by_axis():
    cluster = make_cluster(make_group(2, 4))
    problem = tiny(moe_like(), cluster=cluster)
    links = resolve_links(problem, resolve_hardware(problem))
    batch = one(problem, tp=2, cp=2, ep=2, etp=2, dp_shard=2, sequence_parallel=True, zero_stage=1)
    work, placement = count(problem, batch), place(batch, resolve_hardware(problem))
    hidden, rows = 32 * 16 * 2, 32 / 2 * 2 * 16 * 2
    tensor = links.seconds("all_gather", hidden, placement.tp) + links.seconds("reduce_scatter", hidden, placement.tp)
    assert work.forward.tensor.seconds()[0, LAYER] == pytest.approx(tensor[0])
    gathered = links.seconds("all_gather", 2 * 64 * (8 / 2) * 2, placement.cp)
    assert work.forward.context.seconds()[0, LAYER] == pytest.approx(gathered[0])
    exchange = links.work("all_to_all", rows, placement.ep) * 2
    cut = links.work("all_gather", 2 * rows, placement.etp) + links.work("reduce_scatter", 2 * rows, placement.etp)
    assert work.forward.expert.seconds()[0, LAYER] == pytest.approx((exchange + cut).seconds()[0])
    alone = count(problem).forward
    assert work.forward.kernels[0, LAYER] == alone.kernels[0, LAYER] + LAUNCHES_OF_COLLECTIVE * (2 + 1)
    routed = alone.routed_kernels[0, LAYER] + LAUNCHES_OF_COLLECTIVE * (2 + 2)
    assert work.forward.routed_kernels[0, LAYER] == routed


def test_one_rank_has_nothing_to_say():
    for name, model in families().items():
        for array, found in flat(count(tiny(model)).forward).items():
            if array.startswith(("tensor", "context", "expert")):
                assert (found == 0).all(), (name, array)


def test_a_token_goes_to_every_node_once_where_the_software_sends_it_so():
    """Two of four experts over two nodes: 2·(1 − 1/4) = 1.5 nodes a token instead of two copies."""
    cluster = make_cluster(make_group(2, 2))
    once = replace(AUTOPLAN, dispatches_by_node=True)
    (block,) = moe_like().blocks
    bounded = replace(moe_like(), blocks=(replace(block, feed_forward=replace(block.feed_forward, num_groups=2)),))
    plain, less = (
        count(tiny(bounded, cluster=cluster, stack=stack), ep=4, dp_replicate=4).forward.expert
        for stack in (AUTOPLAN, once)
    )
    assert less.inter_seconds[0, LAYER] == pytest.approx(0.75 * plain.inter_seconds[0, LAYER])
    assert less.intra_seconds[0, LAYER] == plain.intra_seconds[0, LAYER]


@pytest.mark.parametrize("name", sorted(families()))
def test_counted_once_for_each_size_as_one_by_one(name):
    problem = make_problem(families()[name], cluster=make_cluster(make_group(2, 4)), global_batch=48)
    configurations = random_configurations(problem, 20)
    together = count(problem, make_batch(problem, *configurations))
    for i, configuration in enumerate(configurations):
        alone = count(problem, make_batch(problem, configuration))
        for part in ("forward", "backward", "weight", "again"):
            mine, other = flat(getattr(alone, part)), flat(getattr(together, part))
            for array, found in mine.items():
                assert other[array][i] == pytest.approx(found[0], rel=1e-12, abs=0), (part, array)


def test_a_batch_may_repeat_configurations():
    problem = tiny()
    work = count(problem, make_batch(problem, *[Configuration(tp=2), Configuration(), Configuration(tp=2)]))
    assert isinstance(work.forward, PassWork)
    assert work.forward.products.shape == (3, 4)
    assert work.forward.products[0, LAYER] == work.forward.products[2, LAYER] < work.forward.products[1, LAYER]
