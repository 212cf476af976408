"""Pipelines of layers of unlike size, with all of their cuts and modes of layers, within hardly enough memory."""

from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, pairwise, product
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import strategies as st

from autoplan.spec import Attention, Block, Configuration, Mamba2, Mlp, Moe
from costmodels.batch import RECOMPUTES, Batch, Bools, Cuts, Floats, Modes
from costmodels.evaluation import evaluate
from solver.stages import NO_PINS, Pipeline, Pipelines, StagePins
from tests.solver.problems import make_block, make_cluster, make_model, make_problem

HIDDEN = 256
SMALL = Mlp(width=128, gated=True, activation="silu")
MAMBA = Mamba2(num_heads=8, head_dim=64, state_size=64, num_groups=1, conv_kernel=4, chunk_size=64)
SLIDING = Attention(num_heads=8, num_kv_heads=8, head_dim=32, sliding_window=32)
BLOCKS = {
    "tiny": Block(mixer=SLIDING, feed_forward=SMALL),
    "dense": make_block(hidden=HIDDEN, width=1024),
    "huge": make_block(hidden=HIDDEN, width=16384),
    "mamba": Block(mixer=MAMBA, feed_forward=None),
    "experts": Block(mixer=SLIDING, feed_forward=Moe(num_experts=32, top_k=1, expert=replace(SMALL, width=512))),
}
"""Time, states and activations are in other proportions to one another in each."""
TOO_LITTLE = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pipeline, all of its cuts (k, pp + 1) with all modes of layers (k, L) that differ in more than their order.

    `seconds` and `needed` (k,) are what they take and hold, and `fits` (k,) says which of them fit.
    """

    pipeline: Pipeline
    cuts: Cuts
    layers: Modes
    seconds: Floats
    needed: Floats
    fits: Bools

    def find(self, cuts, layers):
        """Return the place of a split; of those that differ in which alike layers repeat most one is listed."""
        sorted_layers = np.asarray(layers)
        for stage in pairwise(cuts):
            kinds = self.pipeline.kinds.of_layer[slice(*stage)]
            for kind in np.unique(kinds):
                places = stage[0] + np.flatnonzero(kinds == kind)
                sorted_layers[places] = np.sort(sorted_layers[places])
        (place,) = np.flatnonzero((self.cuts == cuts).all(axis=1) & (self.layers == sorted_layers).all(axis=1))
        return place

    def has(self, cuts):
        """Return whether these cuts fit in some modes."""
        return bool(self.fits[(self.cuts == cuts).all(axis=1)].any())

    @property
    def least(self):
        """The least time of all that fit, inf when nothing does."""
        return float(np.where(self.fits, self.seconds, np.inf).min())


def make_case(
    pattern,
    *,
    share=1.0,
    vocab=512,
    num_microbatches=8,
    seq_len=512,
    intra=1e10,
    kind="cuda",
    pins=NO_PINS,
    **configuration,
) -> Case:
    """Return a pipeline of layers of these kinds with the memory that a share of all its splits fit.

    That of the share 0 fits the leanest alone, and `TOO_LITTLE` is less than they need.
    """
    chosen = Configuration(**configuration)
    replicas = chosen.dp_shard * chosen.dp_replicate
    problem = make_problem(
        model=make_mixed_model(pattern, vocab),
        cluster=make_cluster(per_node=chosen.pp * replicas, intra=intra, kind=kind),
        global_batch=num_microbatches * replicas,
        seq_len=seq_len,
    )
    return case_of(problem, chosen, share=share, pins=pins)


def case_of(problem, configuration, *, share=1.0, pins=NO_PINS) -> Case:
    """Return a configuration with all of its splits, and the memory that a share of them fit."""
    cuts, layers = every_split(problem.model, configuration, pins)
    found = evaluate(problem, Batch.of([configuration] * len(cuts), cuts, layers))
    needed = found.needed_bytes
    limit = ceil(needed.min() * 0.999) - 1 if share == TOO_LITTLE else ceil(np.quantile(needed, share))
    return Case(
        pipeline=replace(make_pipeline(problem, configuration, pins=pins), most_bytes=float(limit)),
        cuts=cuts,
        layers=layers,
        seconds=found.step_seconds,
        needed=needed,
        fits=found.fits & (needed <= limit),
    )


def every_split(model, configuration, pins):
    """Return all cuts (k, pp + 1) that keep the pins with all modes (k, L) of layers that do.

    Layers of one kind of block in one stage with the same modes to choose from are interchangeable: of choices that
    differ in which of them has which mode the one is listed in which the first repeat least.
    """
    num_layers, tier = model.num_layers, RECOMPUTES.index(configuration.recompute)
    allowed = np.tile(np.arange(3) <= tier, (num_layers, 1))
    allowed = allowed if pins.allowed_modes is None else allowed & pins.allowed_modes
    cuts, layers = [], []
    for inner in combinations(range(1, num_layers), configuration.pp - 1):
        ends = (0, *inner, num_layers)
        kept = all(ends[stage + 1] - ends[stage] == count for stage, count in pins.stage_layers.items())
        if kept and all(ends[place] == layer for place, layer in pins.boundaries.items()):
            stages = [_modes_of_stage(model, allowed, range(*stage)) for stage in pairwise(ends)]
            chosen = [sum(parts, ()) for parts in product(*stages)]
            cuts += [ends] * len(chosen)
            layers += chosen
    return np.asarray(cuts), np.asarray(layers, dtype=np.int8)


def _modes_of_stage(model, allowed, stage):
    kinds = {}
    for layer in stage:
        modes = tuple(np.flatnonzero(allowed[layer]).tolist())
        kinds.setdefault((model.layer_blocks[layer], modes), []).append(layer - stage.start)
    found = []
    for choice in product(*(combinations_with_replacement(modes, len(at)) for (_, modes), at in kinds.items())):
        chosen = [0] * len(stage)
        for at, modes in zip(kinds.values(), choice, strict=True):
            for place, mode in zip(at, modes, strict=True):
                chosen[place] = mode
        found.append(tuple(chosen))
    return found


def make_pipeline(problem, configuration, *, pins: StagePins = NO_PINS) -> Pipeline:
    """Return one configuration with the costs of its units."""
    ends = np.asarray([[0] * configuration.pp + [problem.model.num_layers]])
    (pipeline,) = Pipelines.of(problem, Batch.of([configuration], ends), pins=pins)
    return pipeline


def make_mixed_model(pattern, vocab):
    kinds = sorted(set(pattern))
    model = make_model(layers=1, hidden=HIDDEN, vocab=vocab)
    blocks, layers = tuple(BLOCKS[kind] for kind in kinds), tuple(kinds.index(kind) for kind in pattern)
    return replace(model, blocks=blocks, layer_blocks=layers)


MOST_LAYERS = {"none": 8, "selective": 7, "full": 6}
"""There are tens of thousands of splits of more."""


@st.composite
def cases(draw, tiers=("none", "selective", "full")):
    """Draw a case, mostly of one kind of layer with a few of other kinds among them."""
    pp, tier = draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from(tiers))
    usual, *others = draw(st.permutations(sorted(BLOCKS)))
    kinds = [usual] * 4 + others[: draw(st.sampled_from([1, 2]))]
    dp_shard = draw(st.sampled_from([1, 8]))
    return make_case(
        draw(st.lists(st.sampled_from(kinds), min_size=pp, max_size=MOST_LAYERS[tier])),
        share=draw(st.sampled_from([TOO_LITTLE, 0.0, 0.0, 0.02, 0.1, 0.5, 1.0])),
        vocab=draw(st.sampled_from([512, 8192, 65536])),
        num_microbatches=draw(st.sampled_from([1, 2, 3, 6, 8])),
        seq_len=draw(st.sampled_from([128, 2048])),
        intra=draw(st.sampled_from([1e8, 1e9, 1e11])),
        kind=draw(st.sampled_from(["cuda", "cpu"])),
        pp=pp,
        dp_shard=dp_shard,
        dp_replicate=draw(st.sampled_from([1, 2])),
        zero_stage=draw(st.sampled_from([1, 2, 3])) if dp_shard > 1 else 0,
        schedule=draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"])),
        recompute=tier,
    )


LATER_STAGES_HAVE_ROOM = {
    "pattern": ("tiny", "tiny", "huge", "tiny", "tiny", "tiny"),
    "share": 0.0,
    "seq_len": 2048,
    "pp": 4,
}
"""Under 1f1b only stages 2 and 3 can hold the huge layer; if stage 0 takes all before it, none is left to stage 1."""
EARLIER_STAGES_HAVE_TIME = {
    "pattern": ("mamba",) * 4 + ("experts",) * 2 + ("mamba",) * 3,
    "vocab": 8192,
    "num_microbatches": 6,
    "pp": 5,
    "dp_shard": 16,
    "zero_stage": 3,
}
"""Under 1f1b with few micro-batches earlier stages wait less: if the last take all they can, another gets none."""


def check_answer(case, found, *, rel):
    """Check that what was found is the best of the case, to `rel` in time, and return it; None where nothing fits."""
    if not case.fits.any():
        assert found.best is None
        assert found.bound_seconds == inf
        return None
    best = found.best
    assert best.step_seconds == pytest.approx(case.least, rel=rel)
    assert found.bound_seconds >= case.least * (1 - rel)
    place = case.find(best.cuts, best.layers)
    assert case.fits[place]
    assert best.step_seconds == pytest.approx(case.seconds[place], rel=1e-12)
    assert best.peak_memory_bytes == pytest.approx(case.needed[place], rel=1e-12)
    return best
