"""A search process as the service holds it: started when needed, warm between searches, killed to stop one."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from api.jobs.protocol import LENGTH_BYTES, decode, decode_length, encode

COMMAND = (sys.executable, "-P", "-m", "api.jobs.worker")


class ProcessEndedError(Exception):
    """The search process ended before it had answered; `status` is its exit status, minus the signal if killed."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the search process ended with status {status}")
        self.status = status


class SearchProcess:
    """One worker. It runs with a safe path (``-P``): folders of the working directory do not stand in for ours."""

    def __init__(self) -> None:
        self._process: Process | None = None

    async def start(self) -> Process:
        """Start the process unless it runs."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
        return self._process

    async def search(self, request: dict[str, Any], on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Return the answer to a request; see `api.jobs.protocol`.

        Raises ProcessEndedError when the process ends first. Whatever else stops the wait, a cancellation above
        all, kills the process, so that the search stops.
        """
        process = await self.start()
        try:
            return await _exchange(process, request, on_progress)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.kill()
            raise ProcessEndedError(process.returncode or 0) from None
        except BaseException:
            await self.kill()
            raise

    async def kill(self) -> None:
        """End the process and whatever it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _exchange(
    process: Process, request: dict[str, Any], on_progress: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(encode(request))
    await process.stdin.drain()
    while True:
        head = await process.stdout.readexactly(LENGTH_BYTES)
        message = decode(await process.stdout.readexactly(decode_length(head)))
        if message["kind"] != "progress":
            return message
        on_progress(message["progress"])
