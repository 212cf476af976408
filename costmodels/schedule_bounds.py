"""Lower bounds on what pipelines take that run neither gpipe nor 1f1b, whatever the cuts: chunks may be without layers.

Let f, b, w be forward, input and weight gradient of a micro-batch on a chunk, B = b + w, T = f + B, c = f + b; m
micro-batches, p ranks, v chunks a rank, of which rank r has c_l = r + l·p (interleaved) or r and 2p − 1 − r (zb-v and
dualpipe-v). Every inequality follows one chain of jobs of which each waits for the one before. Any weights γ_r ≥ 0 of
the ranks with Σ γ_r = 1 make one of them; the least coefficient of any chunk then holds for all layers, wherever they
are. The γ_r are chosen so that coefficients are equal, which makes them geometric.

Every schedule: the last chunk C does m forwards and m input gradients between the first that reaches it and the last
that leaves it, so that with the way there and back makespan ≥ Σ c + (m − 1)·c_C. A rank works m·T: at least m·W/p with
W = Σ T, and m times ⌈L/p⌉ of the L layers, of the quickest kind, or of the layers of any kind alone.

zb-h1, m > p: as for 1f1b (`costmodels.bounds`) with c for T; between the first input gradient and the last forward of
rank r there are m − p weight gradients besides, and one of the first rank comes last, so that for every r

    makespan ≥ Σ_{i<r} c_i + (m−p+r+1)·c_r + 2·Σ_{i>r} c_i + (m−p)·w_r + w_0.

With θ = Σ w / Σ c, g = (m−p)(1+θ), K = (g+2p−1+θ)/p and γ_r = (K − 1 − θ·[r = 0] − Σ_{i<r} γ_i)/(g + r) a layer has
the coefficient c·K + (w − θ·c)·((m−p)·γ_r + [r = 0]) on rank r: of layers in the same proportion that makes
(m+p−1)/p·c + (m−p+1)/p·w, what equal stages take (`_late_weights`).

zb-h1, 2 ≤ m ≤ p: the last forward of rank q = p − m + 1 comes after its first input gradient, which makes two ways
there and back; before its first gradient a rank r < q does all forwards, and then has m input and weight gradients:

    makespan ≥ Σ_{i<q} c_i + 2·Σ_{i≥q} c_i,   makespan ≥ Σ f + Σ_{i>r} b_i + m·(b_r + w_r).

With ψ = Σ b / Σ (b + w), x = (1 − ψ/m)^r, the weight ω = x_q/(1 + (1 − x_q)·Σ f/Σ b) of the first and geometric ones
of the others, a layer of any rank has a coefficient of at least the lesser of (1+ω)·c and, at x = 1 or x_{q−1},

    ω·c + (1−ω)·f + (Σ b + ω·Σ f)·(x·(b + w)/Σ (b + w) + (1 − x)·b/Σ b)   (`_few_microbatches`).

zb-h1 also: a rank starts after the forwards before it, makespan ≥ Σ_{i<r} f_i + m·T_r; with φ = Σ f / Σ T and
γ_r = (K − φ·Σ_{i>r} γ_i)/m that is K = φ/(1 − (1 − φ/m)^p), and a layer's coefficient K·T + (f − φ·T)·Σ_{i>r} γ_i. Its
return counts instead with Σ_{i<r} c_i + m·c_r, which for equal shares is Σ c/(1 − (1 − 1/m)^p) (`_one_chunk`).

interleaved: rank r's forwards and backwards of chunk c_l begin after, and end before, the turns of the chunks before
it; of the rank's own jobs the first and last group's of its chunks before c_l are not in between, s micro-batches each:

    makespan ≥ Σ_{i<c_l} T_i + m·Σ_k T_{c_k} − s·Σ_{k<l} T_{c_k}.

With the mean over l and γ_r = (K − Σ_{i>r} γ_i/v)/m a layer on c_l has the coefficient K + (v−1−l)/v·(1 − s·γ_r), so
that makespan ≥ W·(K − (v−1)/v·max(0, s·K/m − 1)) with K = 1/v/(1 − (1 − 1/(v·m))^p) (`_interleaved`).

zb-v, dualpipe-v: the work of rank r begins after the forwards of the chunks before its first, or, but for the
2(p−r) − 1 forwards of its first chunk that come earlier, after those before its second:

    makespan ≥ Σ_{i<r} f_i + m·T,   makespan ≥ Σ_{i<2p−1−r} f_i − (2(p−r)−1)·f_r + m·T,   T of both chunks.

With half of each and γ_r = (K − φ/2·Σ_{i<r} γ_i)/m a layer has at least the coefficient K·T + (f − φ·T)/2·Σ_{i<r} γ_i −
(p·K/m − 1)·f, K = φ/2/(1 − (1 − φ/(2m))^p) (`_v_placed`). T is without what pairs of passes hide, of which a chunk
has no more than m − p (`costmodels.pipeline.pairs`).

Weight gradients may be a rank's last jobs, so that a chain that ends on any rank bounds that rank's finish, and what it
reduces afterwards is at least the `stage`'s; chains that end with the way back bound the first rank's.
"""

from dataclasses import dataclass

import numpy as np

from autoplan.spec import ModelSpec
from costmodels.arrays import take_rows
from costmodels.batch import Batch, Bools, Floats, Ints
from costmodels.pipeline import OVERLAPPED, SEARCHED, SPLIT, V_PLACED, among
from costmodels.stage_costs import StageCosts

SENDS = -2
"""Column of what blocks ranks, of units in `_Work`."""


def bound_ranks(model: ModelSpec, batch: Batch, costs: StageCosts, *, forced_seconds: Floats | float) -> Floats:
    """Return a lower bound (n,) on when all ranks have done their last job and reduced their gradients.

    Of zb-1p and zb-2p it is that of a rank's own time. `forced_seconds` are as for `costmodels.bounds.bound_seconds`.
    """
    forced = np.broadcast_to(np.asarray(forced_seconds, dtype=np.float64), batch.pp.shape)
    work = _Work.of(model, batch, costs, forced)
    stage = costs.reduce_seconds[:, costs.stage]
    first = costs.reduce_seconds[:, costs.embedding] + stage
    own, back = work.busy.copy(), np.where(among(batch.schedule, SEARCHED), 0.0, work.way)
    if len(rows := np.flatnonzero(batch.schedule == "interleaved")):
        back[rows] = np.maximum(np.maximum(back, own)[rows], _interleaved(take_rows(work, rows)))
    if len(rows := np.flatnonzero(among(batch.schedule, V_PLACED))):
        own[rows] = np.maximum(own[rows], _v_placed(take_rows(work, rows)))
    split = (batch.schedule == "zb-h1") & (batch.pp > 1)
    if len(rows := np.flatnonzero(split)):
        begun, returned = _one_chunk(take_rows(work, rows))
        own[rows] = np.maximum(own[rows], begun)
        back[rows] = np.maximum(back[rows], returned)
    if len(rows := np.flatnonzero(split & (costs.num_microbatches <= batch.pp))):
        own[rows] = np.maximum(own[rows], _few_microbatches(take_rows(work, rows)))
    if len(rows := np.flatnonzero(split & (costs.num_microbatches > batch.pp))):
        back[rows] = np.maximum(back[rows], _late_weights(take_rows(work, rows)))
    return np.maximum(own + stage, back + first)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What n configurations have to do for a micro-batch: seconds of the whole model, and of units (n, k).

    `turns` are T, `forwards` f, `weights` w of one unit each, `counts` (n, k) how many there are; the last columns are
    stages, sends that block their rank, and what recompute is forced to add. `way` (n,) is the time of all
    micro-batches on the last chunk with the way there and back, `busy` (n,) that of the rank with the most work.
    """

    pp: Ints
    virtual_stages: Ints
    num_microbatches: Ints
    group: Ints
    turns: Floats
    forwards: Floats
    weights: Floats
    counts: Floats
    way: Floats
    busy: Floats

    @classmethod
    def of(cls, model: ModelSpec, batch: Batch, costs: StageCosts, forced: Floats) -> "_Work":
        """Count the work; `forced` (n,) goes with the input gradients."""
        m, p, v = costs.num_microbatches, batch.pp, batch.virtual_stages
        blocks = np.bincount(model.layer_blocks, minlength=costs.num_blocks)
        once = np.broadcast_to(np.concatenate([blocks, [1, 1]]), (len(batch), len(blocks) + 2))
        crossings = _crossings(batch)
        sends = 2 * crossings * costs.send_seconds
        blocking, none = np.where(costs.send_blocks, sends, 0.0), np.zeros(len(batch))
        paired = np.where(among(batch.schedule, OVERLAPPED), np.maximum(m - p, 0) / m, 0.0)
        hidden = costs.hidden_seconds * paired[:, None]
        later = costs.weight_seconds * among(batch.schedule, SPLIT)[:, None]
        whole = costs.forward_seconds + costs.backward_seconds
        turns = np.column_stack([whole - hidden, blocking, forced])
        weights = np.column_stack([later, none, none])
        counts = np.column_stack([once, batch.chunks, np.ones_like(p), np.ones_like(p)]).astype(np.float64)
        inside = (whole - later)[:, costs.head] + (whole - later)[:, costs.stage]
        there_and_back = (counts[:, :-2] * (whole - later)).sum(axis=1) + sends + forced
        of_any = np.where(blocks > 0, turns[:, : len(blocks)], np.inf).min(axis=1) * -(-model.num_layers // p)
        of_kinds = (turns[:, : len(blocks)] * -(-blocks // p[:, None])).max(axis=1)
        of_layers = np.maximum(of_any, of_kinds)
        heaviest = np.maximum((turns[:, :-3] * (once > 0)).max(axis=1), of_layers) + v * turns[:, -3]
        return cls(
            pp=p,
            virtual_stages=v,
            num_microbatches=m,
            group=-(-m // np.maximum(m // p, 1)),
            turns=turns,
            forwards=np.column_stack([costs.forward_seconds, none, none]),
            weights=weights,
            counts=counts,
            way=there_and_back + (m - 1) * inside,
            busy=m * np.maximum((counts * turns).sum(axis=1) / p, heaviest),
        )

    def total(self, seconds: Floats) -> Floats:
        """Return the sum (n,) over all units of seconds (n, k)."""
        summed: Floats = (self.counts * seconds).sum(axis=1)
        return summed


def _crossings(batch: Batch) -> Ints:
    """Return how often the way through the chunks goes on to another rank (n,)."""
    crossings: Ints = np.where(among(batch.schedule, V_PLACED), 2 * batch.pp - 2, batch.chunks - 1)
    return crossings


def _geometric(share: Floats, m: Ints, p: Ints) -> Floats:
    """Return K (n,) for which γ_r = (K − share·Σ_{i>r} γ_i)/m, or with i < r, add up to 1."""
    with np.errstate(divide="ignore"):
        whole: Floats = share / -np.expm1(p * np.log1p(-share / m))
    return whole


def _interleaved(work: _Work) -> Floats:
    v, m = work.virtual_stages, work.num_microbatches
    each = _geometric(1 / v, m, work.pp)
    least = each - (v - 1) / v * np.maximum(work.group * each / m - 1, 0.0)
    bound: Floats = work.total(work.turns) * least
    return bound


def _v_placed(work: _Work) -> Floats:
    m, p = work.num_microbatches, work.pp
    share = work.total(work.forwards) / work.total(work.turns)
    each = _geometric(share / 2, m, p)
    uneven = np.minimum(work.forwards - share[:, None] * work.turns, 0.0) / 2
    least = each[:, None] * work.turns + uneven - (p * each / m - 1)[:, None] * work.forwards
    return work.total(least)


def _one_chunk(work: _Work) -> tuple[Floats, Floats]:
    """Return bounds (n,) on a rank's own finish, and on the first rank's."""
    m, p = work.num_microbatches, work.pp
    share = work.total(work.forwards) / work.total(work.turns)
    uneven = np.minimum(work.forwards - share[:, None] * work.turns, 0.0)
    begun = work.total(_geometric(share, m, p)[:, None] * work.turns + uneven)
    with np.errstate(divide="ignore"):
        returned = work.total(work.turns - work.weights) / (1 - (1 - 1 / m) ** p)
    return begun, returned


def _late_weights(work: _Work) -> Floats:
    """Return a bound (n,) where there are more micro-batches than ranks."""
    m, p, turns = work.num_microbatches, work.pp, work.turns - work.weights
    share = work.total(work.weights) / work.total(turns)
    g = (m - p) * (1 + share)
    left = (g + p - 1 + share) / p
    first = (left - share) / g
    second, last = (left - first) / (g + 1), (left - first) * g / (g + p - 2) / (g + p - 1)
    of_first = (m - p) * first + 1
    most, least = np.maximum(of_first, (m - p) * second), np.minimum(of_first, (m - p) * last)
    uneven = work.weights - share[:, None] * turns
    coefficient = np.where(uneven > 0, least[:, None], most[:, None])
    bound = work.total((1 + left)[:, None] * turns + uneven * coefficient)
    return np.where(first >= 0, bound, 0.0)


def _few_microbatches(work: _Work) -> Floats:
    """Return a bound (n,) where there are no more micro-batches than ranks."""
    m, turns, forwards = work.num_microbatches, work.turns - work.weights, work.forwards
    inputs = np.maximum(turns - forwards, 0.0)
    f, b, w = work.total(forwards), work.total(inputs), work.total(work.weights)
    first_of_two = work.pp - m + 1
    kept = 1 - b / (b + w) / m
    x = kept**first_of_two
    weight = x / (1 + (1 - x) * f / b)

    def of_earlier(x: Floats) -> Floats:
        """Return the last term of the coefficients (n, k)."""
        late = (x / (b + w))[:, None] * (inputs + work.weights) + ((1 - x) / b)[:, None] * inputs
        return (b + weight * f)[:, None] * late

    earlier = np.minimum(of_earlier(np.ones(len(m))), of_earlier(kept ** (first_of_two - 1)))
    earlier += weight[:, None] * turns + (1 - weight)[:, None] * forwards
    coefficients = np.minimum((1 + weight)[:, None] * turns, earlier)
    coefficients[:, SENDS] = np.minimum(coefficients[:, SENDS], turns[:, SENDS])  # of forwards, half of them
    return np.where(m > 1, work.total(coefficients), 0.0)


def is_other(batch: Batch) -> Bools:
    """Return which configurations (n,) are bounded here: of several ranks, and neither gpipe nor 1f1b."""
    other: Bools = (batch.pp > 1) & (batch.schedule != "gpipe") & (batch.schedule != "1f1b")
    return other
