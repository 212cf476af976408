"""A client of the planning service, over the standard library's HTTP."""

import json
import time
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from autoplan.errors import RunError

ANSWER_SECONDS, POLL_SECONDS, PLAN_SECONDS = 90, 0.5, 600


class Client:
    """Talks to the service at `url`, such as ``http://127.0.0.1:8000``."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def store_profile(self, profile: Any) -> str:
        """Store a profile and return its id, which can be given as a cluster."""
        return str(self._ask("POST", "/profiles", profile)["id"])

    def plan(self, request: dict[str, Any]) -> Any:
        """Return the plan that answers `request`, however long the search takes; raises RunError."""
        answer = self._ask("POST", "/plan", request)
        end = time.monotonic() + PLAN_SECONDS
        while "state" in answer:  # a job, not yet the plan
            if answer["state"] == "done":
                return self._ask("GET", answer["links"]["plan"])
            if answer["state"] in {"failed", "cancelled"} or time.monotonic() > end:
                raise RunError(f"the service found no plan: job {answer['id']} is {answer['state']}")
            time.sleep(POLL_SECONDS)
            answer = self._ask("GET", answer["links"]["self"])
        return answer

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection(self._address, timeout=ANSWER_SECONDS)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
        except (OSError, ValueError) as problem:
            raise RunError(f"{method} {path}: the service does not answer: {problem}") from None
        finally:
            connection.close()
        if status >= 400:
            raise RunError(f"{method} {path}: {status} {answer.get('title')}: {answer.get('detail')}")
        return answer
