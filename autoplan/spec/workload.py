"""How it is trained: batch, sequence length, optimizer kind and precision."""

from typing import Literal

from autoplan.spec.value import Size, value

OptimizerKind = Literal["adamw", "adamw8bit", "muon", "lamb", "sgd"]
PrecisionKind = Literal["bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"]


@value
class Workload:
    """One optimizer step: `global_batch` sequences of `seq_len` tokens."""

    global_batch: Size
    seq_len: Size
    optimizer: OptimizerKind = "adamw"
    precision: PrecisionKind = "bf16"

    @property
    def tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.global_batch * self.seq_len
