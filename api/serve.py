"""Runs the service until it is told to stop."""

import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import structlog
import uvicorn

from api.jobs.manager import Jobs
from api.logs import configure_logs
from api.main import create_app
from api.settings import Settings
from autoplan.errors import AutoplanError, InputError

GRACEFUL_SECONDS = 10

log = structlog.get_logger("api.serve")


def serve(settings: Settings, *, on_listening: Callable[[str], None] = lambda _url: None) -> None:
    """Answer requests until SIGINT or SIGTERM; leaves no process behind.

    `on_listening` is told the service's URL as soon as it answers there. Raises InputError when the address or
    the database cannot be used.
    """
    with _listen(settings) as listener:
        app = create_app(settings)
        configure_logs()
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
        server = _Server(config, app.state.jobs, url=_url(settings.host, listener), on_listening=on_listening)
        with _quiet_exit():
            server.run(sockets=[listener])
    if not server.started:
        raise AutoplanError("the service did not start; its log says why")


class _Server(uvicorn.Server):
    """Ends searches first: whoever waits for one gets its answer before connections are closed."""

    def __init__(self, config: uvicorn.Config, jobs: Jobs, *, url: str, on_listening: Callable[[str], None]) -> None:
        super().__init__(config)
        self._jobs = jobs
        self._url = url
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say where."""
        await super().startup(sockets)
        if self.started:
            log.info("listening", url=self._url)
            self._on_listening(self._url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the searches, then the server."""
        await self._jobs.stop()
        await super().shutdown(sockets)


@contextmanager
def _quiet_exit() -> Iterator[None]:
    """End normally on a signal: uvicorn raises the signals that it has handled once more at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _LeaveError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _LeaveError(BaseException):
    """Leaves the server."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise _LeaveError


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as problem:
        raise InputError(f"{settings.host}: {problem.strerror}", where="AUTOPLAN_HOST") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as problem:
        listener.close()
        where = "AUTOPLAN_PORT" if problem.errno == errno.EADDRINUSE else "AUTOPLAN_HOST"
        raise InputError(f"{settings.host}:{settings.port}: {problem.strerror}", where=where) from None
    return listener


def _url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
