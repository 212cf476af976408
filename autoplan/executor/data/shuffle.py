"""A permutation of 0..size-1 that needs no memory: each place is computed, so that any rank can start anywhere.

A balanced Feistel network permutes the smallest power of four that is at least `size`; a value that falls
outside is sent through again until it falls inside ("cycle walking", Black and Rogaway, 2002), which leaves a
permutation of the rest. The round function is the finalizer of splitmix64.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6


def permute(index: NDArray[np.uint64], *, size: int, seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return where the permutation chosen by (seed, epoch) sends each of `index`, which are below `size`."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = [_round_key(seed, epoch, number) for number in range(_ROUNDS)]
    result = _feistel(index.astype(np.uint64), half_bits, keys)
    while (outside := result >= size).any():
        result[outside] = _feistel(result[outside], half_bits, keys)
    return result


def _round_key(seed: int, epoch: int, number: int) -> np.uint64:
    digest = hashlib.sha256(f"{seed}/{epoch}/{number}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _feistel(values: NDArray[np.uint64], half_bits: int, keys: list[np.uint64]) -> NDArray[np.uint64]:
    mask = np.uint64((1 << half_bits) - 1)
    left, right = values >> np.uint64(half_bits), values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) >> np.uint64(64 - half_bits))
    return (left << np.uint64(half_bits)) | right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
