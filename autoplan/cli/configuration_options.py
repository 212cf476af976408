"""The options of `autoplan estimate`, of which every one is a field of the configuration."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from autoplan.spec import Configuration, CpMethod, Recompute, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationOptions:
    """What a `Configuration` is made of."""

    dp_replicate: Annotated[int, typer.Option(min=1, help="Replicas of the whole shard group.")] = 1
    dp_shard: Annotated[int, typer.Option(min=1, help="Ranks that shard states between them.")] = 1
    cp: Annotated[int, typer.Option(min=1, help="Context-parallel degree.")] = 1
    cp_method: Annotated[CpMethod, typer.Option(help="How context-parallel ranks exchange.")] = "allgather"
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel degree.")] = 1
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1
    ep: Annotated[int, typer.Option(min=1, help="Expert-parallel degree.")] = 1
    etp: Annotated[int, typer.Option(min=1, help="Tensor-parallel degree within experts.")] = 1
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="Cut activations along the sequence between TP regions.")
    ] = False
    zero_stage: Annotated[
        int, typer.Option(min=0, max=3, help="What dp_shard shards: 1 optimizer, 2 also gradients, 3 also weights.")
    ] = 0
    micro_batch: Annotated[int, typer.Option(min=1, help="Sequences per micro-batch and rank.")] = 1
    schedule: Annotated[Schedule, typer.Option(help="Order of micro-batches in the pipeline.")] = "1f1b"
    virtual_stages: Annotated[int, typer.Option(min=1, help="Chunks per pipeline rank.")] = 1
    recompute: Annotated[Recompute, typer.Option(help="What the backward pass computes again.")] = "none"
    recompute_layers: Annotated[
        int, typer.Option(min=0, help="Layers that compute it again, spread evenly; 0 means all.")
    ] = 0
    uneven_shares: Annotated[
        bool,
        typer.Option(
            "--uneven-shares", help="Replicas on unlike nodes take micro-batches by the speed of their nodes."
        ),
    ] = False

    def read(self) -> Configuration:
        """Return the configuration; raises ConfigurationError for a value that it cannot have."""
        from autoplan.errors import ConfigurationError
        from autoplan.spec.codec import from_jsonable

        return from_jsonable(Configuration, asdict(self), where="options", error=ConfigurationError)
