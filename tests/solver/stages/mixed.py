"""Pipelines of layers of unlike size, with all of their cuts, within hardly enough memory."""

from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil

import numpy as np
from hypothesis import strategies as st

from autoplan.spec import Attention, Block, Configuration, Mamba2, Mlp, Moe
from costmodels.batch import Batch, Bools, Cuts, Floats
from solver.stages.pipelines import Pipeline, pipelines
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
    """A pipeline, all of its cuts (k, pp + 1), their step times (k,) and which of them fit (k,)."""

    pipeline: Pipeline
    cuts: Cuts
    seconds: Floats
    fits: Bools

    def has(self, cuts: tuple[int, ...]) -> bool:
        """Return whether these are cuts that fit."""
        return bool(self.fits[(self.cuts == cuts).all(axis=1)].any())


def make_case(pattern, *, share=1.0, vocab=512, num_microbatches=8, seq_len=512, **configuration):
    """Return a pipeline of layers of these kinds with the memory that a share of all its cuts fit.

    That of the share 0 fits the leanest cuts alone, and `TOO_LITTLE` is less than they need.
    """
    chosen = Configuration(**configuration)
    problem = make_problem(
        model=make_mixed_model(pattern, vocab),
        cluster=make_cluster(per_node=chosen.pp * chosen.dp_shard, intra=1e10),
        global_batch=num_microbatches * chosen.dp_shard,
        seq_len=seq_len,
    )
    inner = combinations(range(1, len(pattern)), chosen.pp - 1)
    cuts = [(0, *boundaries, len(pattern)) for boundaries in inner]
    (pipeline,) = pipelines(problem, Batch.of([chosen], np.asarray(cuts[:1])))
    seconds, needed = pipeline.cost(cuts)
    limit = ceil(needed.min() * 0.999) - 1 if share == TOO_LITTLE else ceil(np.quantile(needed, share))
    return Case(
        pipeline=replace(pipeline, memory_limit_bytes=limit),
        cuts=np.asarray(cuts),
        seconds=seconds,
        fits=needed <= limit,
    )


def make_mixed_model(pattern, vocab):
    kinds = sorted(set(pattern))
    model = make_model(layers=1, hidden=HIDDEN, vocab=vocab)
    blocks, layers = tuple(BLOCKS[kind] for kind in kinds), tuple(kinds.index(kind) for kind in pattern)
    return replace(model, blocks=blocks, layer_blocks=layers)


@st.composite
def cases(draw):
    """Draw a case, mostly of one kind of layer with a few of other kinds among them."""
    pp = draw(st.sampled_from([2, 3, 4, 5]))
    usual, *others = draw(st.permutations(sorted(BLOCKS)))
    kinds = [usual] * 4 + others[: draw(st.sampled_from([1, 2]))]
    return make_case(
        draw(st.lists(st.sampled_from(kinds), min_size=pp, max_size=9)),
        share=draw(st.sampled_from([TOO_LITTLE, 0.0, 0.0, 0.02, 0.1, 0.5, 1.0])),
        vocab=draw(st.sampled_from([512, 8192, 65536])),
        num_microbatches=draw(st.sampled_from([1, 2, 3, 6, 8])),
        seq_len=draw(st.sampled_from([128, 2048])),
        pp=pp,
        dp_shard=16,
        zero_stage=draw(st.sampled_from([1, 3])),
        schedule=draw(st.sampled_from(["gpipe", "1f1b"])),
        recompute=draw(st.sampled_from(["none", "full"])),
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
