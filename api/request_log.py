"""One line in the log for every request."""

from time import perf_counter

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger("api.requests")


class RequestLog:
    """ASGI middleware that logs method, path, status and seconds of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 500, perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            seconds = round(perf_counter() - started, 4)
            log.info("request", method=scope["method"], path=scope["path"], status=status, seconds=seconds)
