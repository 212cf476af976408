"""Reads request bodies up to a limit, and answers larger ones with a problem."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.handlers import answer
from api.problems import from_status

DRAIN_FACTOR = 16


class BodyLimit:
    """ASGI middleware that reads the whole body, at most `max_bytes`, before the app is called.

    Of a larger body up to 16 times as much is read and thrown away: a client that is still sending would
    otherwise see its connection break instead of the answer.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, size, more = bytearray(), 0, True
        while more and size <= DRAIN_FACTOR * self.max_bytes:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunk = message.get("body", b"")
            size, more = size + len(chunk), message.get("more_body", False)
            if size <= self.max_bytes:
                body += chunk
        if size > self.max_bytes:
            problem = from_status(413, f"the body is larger than {self.max_bytes} bytes", where="body")
            await answer(problem)(scope, receive, send)
            return
        await self.app(scope, _replay(bytes(body), receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
