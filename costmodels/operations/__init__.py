"""Operations of every kind of layer: one description from which time, memory and FLOPs are counted."""

from costmodels.operations.block import block_operations
from costmodels.operations.ends import embedding_operations, head_operations
from costmodels.operations.operation import Core, Operation, Product, Transfer, total_saved
from costmodels.operations.sizes import Sizes, shares, sizes_of

__all__ = [
    "Core",
    "Operation",
    "Product",
    "Sizes",
    "Transfer",
    "block_operations",
    "embedding_operations",
    "head_operations",
    "shares",
    "sizes_of",
    "total_saved",
]
