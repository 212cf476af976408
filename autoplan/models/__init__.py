"""Torch modules of every family, built from a ModelSpec; they know nothing of parallelism."""

from autoplan.models.block import DecoderBlock
from autoplan.models.decoder import Decoder, build_model
from autoplan.models.initialize import initial_value, initialize
from autoplan.models.rope import RopeTables, rope_tables

__all__ = ["Decoder", "DecoderBlock", "RopeTables", "build_model", "initial_value", "initialize", "rope_tables"]
