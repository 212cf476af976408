from dataclasses import replace

import pytest

from autoplan.spec import AUTOPLAN, Configuration
from costmodels.assumptions import NOT_MODELLED
from costmodels.estimate import estimate
from tests.costmodels.problems import make_cluster, make_group, make_layer, make_matmul, make_problem, make_profile
from tests.tiny_models import llama_like

EIGHT = Configuration(dp_replicate=8)


def said(problem, configuration=EIGHT):
    return estimate(problem, configuration).assumptions


def mentions(problem, words, configuration=EIGHT):
    return any(words in text for text in said(problem, configuration))


def with_profile(**measured):
    model, cluster = llama_like(), make_cluster()
    return make_problem(model, cluster=cluster, profile=make_profile(cluster, **measured))


@pytest.mark.parametrize(
    ("words", "problem", "other"),
    [
        ("muon", make_problem(optimizer="muon"), make_problem()),
        ("behind compute", make_problem(stack=replace(AUTOPLAN, offloaded_layers=2)), make_problem()),
        ("beyond the 64 positions", make_problem(llama_like(), seq_len=128), make_problem(llama_like())),
        ("dense mask", make_problem(llama_like(sliding_window=16)), make_problem(llama_like())),
        (
            "dense mask",
            make_problem(llama_like(sliding_window=16)),
            make_problem(llama_like(sliding_window=16), stack=replace(AUTOPLAN, windowed=True)),
        ),
        (
            "mixed cluster",
            make_problem(cluster=make_cluster(make_group(1, 4), make_group(1, 4, slug="other"))),
            make_problem(),
        ),
        ("take turns", make_problem(cluster=make_cluster(make_group(kind="cpu"))), make_problem()),
        ("of the peak", make_problem(), with_profile(matmuls=[make_matmul(64, 64, 64, 1e-5)])),
        ("only layers are measured", with_profile(layers=[make_layer(llama_like())]), make_problem()),
        (
            "carried over",
            with_profile(layers=[make_layer(llama_like(), micro_batch=4)]),
            with_profile(layers=[make_layer(llama_like())]),
        ),
    ],
)
def test_what_is_taken_for_granted_is_said_where_it_matters(words, problem, other):
    assert mentions(problem, words)
    assert not mentions(other, words)


def test_what_is_not_modelled_is_always_listed():
    found = estimate(make_problem(), EIGHT)
    assert found.not_modelled == NOT_MODELLED
    assert len(set(found.assumptions)) == len(found.assumptions)


def test_selective_recompute_that_repeats_nothing_is_said():
    stack = replace(AUTOPLAN, name="megatron", redone=("core_attention",))
    for problem, mode, said in (
        (make_problem(stack=stack), "selective", True),
        (make_problem(stack=stack), "none", False),
        (make_problem(stack=replace(stack, attention="unfused")), "selective", False),
        (make_problem(), "selective", False),
    ):
        found = estimate(problem, Configuration(dp_replicate=8, recompute=mode)).assumptions
        assert (
            any("megatron repeats core_attention, of which these layers keep nothing" in text for text in found) == said
        )
