"""One point of the plan space: the degrees and the choices that one number answers."""

from itertools import pairwise
from math import gcd
from typing import Literal

from autoplan.spec.value import NonNegative, Size, value

Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "zb-1p", "zb-2p"]
Recompute = Literal["none", "selective", "full"]
CpMethod = Literal["ulysses", "allgather", "ring"]


@value
class Configuration:
    """Degrees and choices; `world_size` = dp·cp·tp·pp with dp = dp_replicate·dp_shard.

    `zero_stage` says what the dp_shard axis shards: 0 nothing (dp_shard is 1), 1 optimizer states,
    2 also gradients, 3 also weights. Stages 1 and 2 gather weights once per step; stage 1 reduces gradients
    once per step, stage 2 after every micro-batch; stage 3 gathers for every forward and again for every
    backward, and reduces after every micro-batch.

    A rank has `virtual_stages` chunks of layers. Experts are spread over `ep` groups of the dp·cp·tp ranks of a stage
    and each is cut over `etp` of them; the rest of those ranks repeat or shard the experts. `recompute` applies to
    `recompute_layers` layers, spread evenly; 0 means all. With `uneven_shares` each of the dp_replicate replicas takes
    as many micro-batches as the speed of its nodes allows, and gradients are weighed by their tokens.
    """

    dp_replicate: Size = 1
    dp_shard: Size = 1
    cp: Size = 1
    cp_method: CpMethod = "allgather"
    tp: Size = 1
    pp: Size = 1
    ep: Size = 1
    etp: Size = 1
    sequence_parallel: bool = False
    zero_stage: Literal[0, 1, 2, 3] = 0
    micro_batch: Size = 1
    schedule: Schedule = "1f1b"
    virtual_stages: Size = 1
    recompute: Recompute = "none"
    recompute_layers: NonNegative = 0
    uneven_shares: bool = False

    @property
    def dp(self) -> int:
        """Data-parallel degree: replicas times shards."""
        return self.dp_replicate * self.dp_shard

    @property
    def world_size(self) -> int:
        """Ranks that the configuration uses."""
        return self.dp * self.cp * self.tp * self.pp

    def spread_recompute(self, num_layers: int) -> tuple[Recompute, ...]:
        """Return what each layer repeats when the recomputed ones, if they are not all, are spread evenly."""
        recomputed = self.recompute_layers or num_layers
        done = [i * recomputed // num_layers for i in range(num_layers + 1)]
        return tuple(self.recompute if after > before else "none" for before, after in pairwise(done))

    @property
    def expert_shard(self) -> int:
        """Ranks that share the states of one expert part, as dp_shard·cp ranks share those of other weights.

        The ep·etp ranks of an expert mesh are the stage's innermost; what is left of a shard group's dp_shard·cp·tp
        ranks shards the experts, and the others repeat them. Nothing is sharded at zero_stage 0.
        """
        if self.zero_stage == 0:
            return 1
        group, part = self.dp_shard * self.cp * self.tp, self.ep * self.etp
        return gcd(self.dp_replicate * group // part, group // gcd(group, part))
