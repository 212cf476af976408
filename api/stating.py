"""Headers that state, beside a plan or an estimate, what the service chose or passed over."""

import json
from collections.abc import Iterable
from typing import Any


def stated(defaults: dict[str, Any], notices: Iterable[str]) -> dict[str, str]:
    """Return the headers for what a request left open and for what was passed over in its model.

    Both are structured fields (RFC 9651): `Autoplan-Defaults` a dictionary such as
    ``cluster="cpu:1x2", workload.seq_len=512``, `Autoplan-Notices` a list of strings.
    """
    headers = {}
    if defaults:
        headers["Autoplan-Defaults"] = ", ".join(f"{name}={_item(value)}" for name, value in _flat(defaults))
    if notices := list(notices):
        headers["Autoplan-Notices"] = ", ".join(_item(notice) for notice in notices)
    return headers


def _flat(defaults: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in defaults.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def _item(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    printable = "".join(char if " " <= char <= "~" else "?" for char in str(value))
    return json.dumps(printable)
