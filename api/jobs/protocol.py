"""What the service and a search process say to each other: JSON objects, each after its length in four bytes.

To the process: ``{"problems": […], "options": …, "axis": …, "points": …, "tokens_per_second": …}``, which are those of
`api.requests.Search`, one search at a time. From it: any number of
``{"kind": "progress", "progress": …}``, then ``{"kind": "plan", …}`` or ``{"kind": "problem", "problem": …}``, with a
``"traceback"`` when the fault is ours.
"""

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


def encode(message: dict[str, Any]) -> bytes:
    """Return the bytes that carry a message."""
    body = json.dumps(message, allow_nan=False).encode()
    return _LENGTH.pack(len(body)) + body


def decode_length(head: bytes) -> int:
    """Return how many bytes follow the first four."""
    length: int = _LENGTH.unpack(head)[0]
    return length


def decode(body: bytes) -> dict[str, Any]:
    """Return the message that the bytes after the length carry."""
    message: dict[str, Any] = json.loads(body)
    return message


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """Wait for the next message; None at the end of the stream."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = decode_length(head)
    body = stream.read(length)
    return decode(body) if len(body) == length else None
