"""The pipeline in time: what every rank does when, for every schedule that a configuration may name.

`simulate` runs one configuration event by event; every number that is reported comes from it. `finish_seconds`
computes the same times for many configurations at once, `bound_finish` bounds them from below without going
through the micro-batches, `start_seconds` says when each rank has its first input, `in_flight` counts the
activations that the orders make each chunk hold, and `paired_forwards` the forwards that run beside a backward.

A makespan ends with the last rank. Zero-bubble schedules move their waiting time to the start of a rank and the end
of others: zb-2p and zb-v reach no bubble only where a rank may begin its next step while others finish this one. A
rank's own time is its finish less its start.
"""

from costmodels.pipeline.bounds import bound_finish, bound_makespan
from costmodels.pipeline.finish import finish_seconds, start_seconds
from costmodels.pipeline.grouping import SCHEDULES, rank_table
from costmodels.pipeline.held import flight_table, in_flight
from costmodels.pipeline.jobs import OVERLAPPED, SEARCHED, SPLIT, V_PLACED, Job, Kind, among, chunk_rank
from costmodels.pipeline.orders import rank_order
from costmodels.pipeline.pairs import paired_forwards
from costmodels.pipeline.simulation import Event, simulate
from costmodels.pipeline.times import ChunkSeconds

__all__ = [
    "OVERLAPPED",
    "SCHEDULES",
    "SEARCHED",
    "SPLIT",
    "V_PLACED",
    "ChunkSeconds",
    "Event",
    "Job",
    "Kind",
    "among",
    "bound_finish",
    "bound_makespan",
    "chunk_rank",
    "finish_seconds",
    "flight_table",
    "in_flight",
    "paired_forwards",
    "rank_order",
    "rank_table",
    "simulate",
    "start_seconds",
]
