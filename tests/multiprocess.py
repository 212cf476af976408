"""Runs a function on several ranks: one process imports torch once and forks the ranks of every launch.

A test calls ``launch(function, *args, num_ranks=2)``. `function` is a top-level function of the test module; every
rank calls it as ``function(*args)`` inside an initialized gloo group, and the results come back in rank order. The
first rank that fails ends the others; its traceback is in `RankError`. Ranks that hang are killed at the time limit
and their stacks are shown. Arguments and results travel by pickle.

Forking from pytest itself would not do: autograd refuses to run in the fork of a process that has run it.
"""

import atexit
import faulthandler
import functools
import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GRACE_SECONDS = 1.0


class RankError(AssertionError):
    """A rank failed or hung; the message carries the first failing rank and its traceback."""


def launch(function: Callable[..., Any], *args: Any, num_ranks: int, timeout_seconds: float = 120.0) -> list[Any]:
    """Return what `function` returns on each of `num_ranks` ranks; raises RankError."""
    assert function.__module__ != "__main__", "the ranks would run the script again"
    file = sys.modules[function.__module__].__file__
    job = (str(file), function.__module__, function.__qualname__, pickle.dumps(args), num_ranks, timeout_seconds)
    server = _server()
    server.send(job)
    outcome, payload = server.recv()
    if outcome == "error":
        raise RankError(payload)
    return [pickle.loads(result) for result in payload]


@functools.cache
def _server() -> Connection:
    ours, theirs = Pipe()
    command = [sys.executable, "-P", __file__, str(theirs.fileno())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, cwd=ROOT)
    theirs.close()
    atexit.register(_stop, process, ours)
    return ours


def _stop(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def _serve(connection: Connection) -> None:
    sys.path.append(str(ROOT))
    _import_once()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(_run_job(*job))


def _import_once() -> None:
    for name in ("checkpoint", "fsdp", "pipelining", "tensor.parallel"):
        importlib.import_module(f"torch.distributed.{name}")


def _run_job(
    file: str, module: str, function: str, args: bytes, num_ranks: int, timeout_seconds: float
) -> tuple[str, Any]:
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes, readers = [], []
        for rank in range(num_ranks):
            reader, writer = context.Pipe(duplex=False)
            job = (file, module, function, args, rank, num_ranks, timeout_seconds, folder, writer)
            process = context.Process(target=_rank_main, args=job, daemon=True)
            process.start()
            writer.close()
            processes.append(process)
            readers.append(reader)
        try:
            return _collect(readers, processes, timeout_seconds, Path(folder))
        finally:
            for process in processes:
                process.kill()
                process.join()


def _collect(
    readers: list[Connection], processes: list[BaseProcess], timeout_seconds: float, folder: Path
) -> tuple[str, Any]:
    results: dict[int, bytes] = {}
    failures: dict[int, tuple[float, str]] = {}
    deadline = time.monotonic() + timeout_seconds + GRACE_SECONDS
    while len(results) + len(failures) < len(readers):
        pending = [r for rank, r in enumerate(readers) if rank not in results and rank not in failures]
        ready = wait(pending, timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for reader in ready:
            rank = readers.index(reader)
            outcome, payload = _receive(reader, processes[rank])
            if outcome == "result":
                results[rank] = payload
            else:
                failures[rank] = payload
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    if failures:
        rank = min(failures, key=lambda rank: failures[rank][0])
        return "error", f"rank {rank} of {len(readers)} failed:\n{failures[rank][1]}"
    if len(results) < len(readers):
        hung = [rank for rank in range(len(readers)) if rank not in results]
        stacks = "\n".join(f"rank {rank}:\n{(folder / f'stack.{rank}').read_text()}" for rank in hung)
        return "error", f"ranks {hung} hung for {timeout_seconds} s:\n{stacks}"
    return "result", [results[rank] for rank in range(len(readers))]


def _receive(reader: Connection, process: BaseProcess) -> tuple[str, Any]:
    try:
        outcome: tuple[str, Any] = pickle.loads(reader.recv_bytes())
    except EOFError:
        process.join()
        return "failure", (time.time(), f"the process ended with exit code {process.exitcode}")
    return outcome


def _rank_main(
    file: str,
    module: str,
    function: str,
    args: bytes,
    rank: int,
    num_ranks: int,
    timeout_seconds: float,
    folder: str,
    writer: Connection,
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    with Path(folder, f"stack.{rank}").open("w") as stack:
        faulthandler.dump_traceback_later(timeout_seconds, file=stack)
        try:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=num_ranks)
            result = _load(file, module, function)(*pickle.loads(args))
            writer.send_bytes(pickle.dumps(("result", pickle.dumps(result))))
            dist.barrier()
            dist.destroy_process_group()
        except BaseException:  # noqa: BLE001 -- every failure of a rank goes to the test
            writer.send_bytes(pickle.dumps(("failure", (time.time(), traceback.format_exc()))))
        faulthandler.cancel_dump_traceback_later()


def _load(file: str, module: str, function: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    spec.loader.exec_module(loaded)
    found: Callable[..., Any] = functools.reduce(getattr, function.split("."), loaded)
    return found


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
