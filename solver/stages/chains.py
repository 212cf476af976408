"""Chains of jobs of which each waits for the one before: what they take, no cuts take less.

A schedule says which job of a rank follows which, and which jobs need what others put out. So the longest chain through
the jobs of one partition of the layers is a chain in every other one, too: with so many forwards, input gradients and
weight gradients of every stage, and so many sends, it takes

    Σ_s (a_s·f_s + b_s·h_s + c_s·v_s) + n·τ + reduce of its last stage,

a sum over edges (`Chains.costs`), whose least over all cuts is a shortest path. For the cuts that it was found with it
is their very time.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from costmodels.batch import Floats, Ints
from costmodels.pipeline import ChunkSeconds
from costmodels.pipeline.jobs import FORWARD, WEIGHT
from costmodels.pipeline.program import Program, fixed_program, run_one
from costmodels.pipeline.times import chunk_times
from solver.stages.pipelines import Pipeline

MOST_JOBS = {"1f1b": 1 << 20}
OTHERWISE = 1 << 17
"""Jobs of a step, above which no chains are looked for: of 1f1b it is known what follows what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """K chains: how many `forwards`, input `gradients` and `weights` (K, pp) of each stage they have.

    They have `sends` (K,), and end on stage `last` (K,).
    """

    forwards: Floats
    gradients: Floats
    weights: Floats
    sends: Floats
    last: Ints

    def __len__(self) -> int:
        return len(self.last)

    @classmethod
    def none(cls, pp: int) -> "Chains":
        """Return no chains."""
        empty = np.zeros((0, pp))
        return cls(forwards=empty, gradients=empty, weights=empty, sends=np.zeros(0), last=np.zeros(0, dtype=np.int64))

    def and_those(self, others: "Chains") -> "Chains":
        """Return these chains and others."""
        joined: Any = {
            field.name: np.concatenate([getattr(self, field.name), getattr(others, field.name)])
            for field in fields(self)
        }
        return Chains(**joined)

    def costs(self, forward: Floats, gradient: Floats, weight: Floats, reduce: Floats) -> Floats:
        """Return what edges (p, z, w) with these seconds add to every chain, (K, p, z, w)."""
        stage = np.arange(self.forwards.shape[1])
        a, b, c, d = (
            each[:, :, None, None]
            for each in (self.forwards, self.gradients, self.weights, self.last[:, None] == stage)
        )
        costs: Floats = a * forward + b * gradient + c * weight + d * reduce
        return costs


def longest_chain(pipeline: Pipeline, *, forward: Floats, backward: Floats, weight: Floats, reduce: Floats) -> Chains:
    """Return the chain that a step takes as long as whose stages take so many seconds (pp,); none where it is too long.

    `backward` includes `weight`; `reduce` is what each stage does after its last job.
    """
    pp, m = pipeline.pp, pipeline.num_microbatches
    if 2 * pp * m > MOST_JOBS.get(pipeline.schedule, OTHERWISE):
        return Chains.none(pp)
    program = fixed_program(pipeline.row.schedule[0], pp=pp, virtual_stages=1, num_microbatches=m)
    seconds = ChunkSeconds(
        forward=forward[None],
        backward=(backward - weight)[None],
        weight=weight[None],
        send_seconds=pipeline.costs.send_seconds,
        send_blocks=pipeline.costs.send_blocks,
    )
    times = chunk_times(program.chunk_rank, seconds)
    starts, finish = run_one(program, times)
    length, travel = (each[program.part, 0] for each in times.parts())
    before = _before(program, starts + length, travel)
    job, jobs = int(np.flatnonzero(program.rank == (last := int((finish + reduce).argmax())))[-1]), []
    while job >= 0:
        jobs.append(job)
        job = before[job]
    chain = np.asarray(jobs)
    kind, stage = np.divmod(program.part[chain], pp)

    def count(which: Any) -> Floats:
        return np.bincount(stage[which], minlength=pp)[None].astype(np.float64)

    return Chains(
        forwards=count(kind == FORWARD),
        gradients=count((kind != FORWARD) & (kind != WEIGHT)),
        weights=count(kind == WEIGHT),
        sends=np.asarray([float((np.diff(stage) != 0).sum())]),
        last=np.asarray([last]),
    )


def _before(program: Program, ends: Floats, travel: Floats) -> list[int]:
    """Return the job that each job waits for last, −1 where there is none, of jobs that end at `ends` (J,)."""
    order = np.argsort(program.rank, kind="stable")
    previous = np.full(len(ends) + 1, -1)
    alike = program.rank[order[1:]] == program.rank[order[:-1]]
    previous[order[1:][alike]] = order[:-1][alike]
    free = np.append(ends, 0.0)[previous[:-1]]
    arrived = np.append(ends + travel, 0.0)[program.sources[0]]
    source = np.where(program.sources[0] == len(ends), -1, program.sources[0])
    before: list[int] = np.where(arrived > free, source, previous[:-1]).tolist()
    return before
