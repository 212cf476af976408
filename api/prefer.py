"""The Prefer header (RFC 7240): how long a client is ready to wait for its answer."""

import re

DEFAULT_WAIT_SECONDS = 10
_WAIT = re.compile(r"\bwait\s*=\s*\"?(\d{1,9})\b", re.IGNORECASE)


def wait_seconds(prefer: str | None, *, longest: int) -> int:
    """Return the seconds that ``Prefer: wait=N`` asks for, at most `longest`.

    ``respond-async`` without a wait means 0; without either, 10 seconds. What cannot be read is no error: the
    header states a wish.
    """
    found = _WAIT.search(prefer or "")
    if found:
        return min(int(found[1]), longest)
    return 0 if "respond-async" in (prefer or "").lower() else min(DEFAULT_WAIT_SECONDS, longest)
