"""How long whole searches take, as processes of their own, and how that grows with devices and with layers.

Every search is `python -m autoplan plan … --json`; beside it, in every round, a process that plans a tiny model for two
devices, so that of a busy machine the ratio still tells something: see README.md.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.growth_plot import write_plot

MIB = 2**20
UNIT = 1 if sys.platform == "darwin" else 1024
"""What the system counts memory in."""


class Question(NamedTuple):
    """A search, and the seconds within which it should be proved optimal; None where none are set."""

    name: str
    model: str
    cluster: str
    global_batch: int
    seq_len: int
    target_seconds: float | None = None


MIXED = "a100-80g-sxm:64x8+h100-80g-sxm:32x8+h200-141g-sxm:32x8"
TINY = Question("tiny, 2 devices", "llama-15m", "h100-80g-sxm:1x2", 8, 256)
QUESTIONS = (
    Question("Llama 3 70B, 512 H100", "llama-3-70b", "h100-80g-sxm:64x8", 512, 8192, 1.5),
    Question("Llama 3.1 405B, 16,384 H100", "llama-3.1-405b", "h100-80g-sxm:2048x8", 2048, 8192, 5.0),
    Question("DeepSeek-V3, 2,048 H100", "deepseek-v3", "h100-80g-sxm:256x8", 4096, 4096, 10.0),
    Question("Llama 3 70B, 1,024 devices of three kinds", "llama-3-70b", MIXED, 1024, 8192, 20.0),
)
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
"""A published kind of model whose depth varies."""
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
LAYERS = (8, 16, 32, 64, 125, 250, 500, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=3, help="times that every search runs")
    parser.add_argument("--growth", action="store_true", help="measure the growth with devices and layers too")
    parser.add_argument("--plot", type=Path, help="write the growth as an HTML page")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"searches": measure(QUESTIONS, rounds=arguments.rounds)}
    if arguments.growth or arguments.plot:
        result |= measure_growth(rounds=arguments.rounds)
    if arguments.plot:
        write_plot(result, arguments.plot)
    print(json.dumps(result, indent=2) if arguments.json else as_text(result))


def measure(questions: tuple[Question, ...], *, rounds: int) -> dict[str, dict[str, Any]]:
    """Return of every search the median of its seconds, and of these over the tiny search's of the same round."""
    found: dict[str, list[dict[str, Any]]] = {question.name: [] for question in questions}
    for _ in range(rounds):
        tiny = run(TINY)["seconds"]
        for question in questions:
            one = run(question)
            found[question.name].append(one | {"of_tiny": one["seconds"] / tiny})
    targets = {question.name: question.target_seconds for question in questions}
    return {name: _median(runs) | {"target_seconds": targets[name]} for name, runs in found.items()}


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {name: statistics.median(run[name] for run in runs) for name in ("seconds", "of_tiny", "peak_bytes")}
    return {**runs[0], **numbers}


def measure_growth(*, rounds: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Return what searches take of Llama 3 8B by devices, four sequences each, and by layers of a small model."""
    by_devices = tuple(Question(str(n), "llama-3-8b", f"h100-80g-sxm:{n // 8}x8", 4 * n, 8192) for n in DEVICES)
    with tempfile.TemporaryDirectory() as folder:
        by_layers = []
        for layers in LAYERS:
            path = Path(folder) / f"{layers}.json"
            path.write_text(json.dumps(SMALL | {"num_hidden_layers": layers}), encoding="utf-8")
            by_layers.append(Question(str(layers), str(path), "h100-80g-sxm:16x8", 512, 4096))
        return {
            "by_devices": {int(name): one for name, one in measure(by_devices, rounds=rounds).items()},
            "by_layers": {int(name): one for name, one in measure(tuple(by_layers), rounds=rounds).items()},
        }


def run(question: Question) -> dict[str, Any]:
    """Plan in a process of its own; return its seconds, its peak of memory, and what the plan says of the search."""
    command = [sys.executable, "-m", "autoplan", "plan", question.model, "--cluster", question.cluster, "--json"]
    command += ["--global-batch", str(question.global_batch), "--seq-len", str(question.seq_len)]
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - started
        out.seek(0)
        text = out.read()
    if status:
        message = f"{question.name}: status {os.waitstatus_to_exitcode(status)}"
        raise SystemExit(message)
    plan = json.loads(text)
    kept = ("status", "gap", "explored", "pruned", "value")
    return {"seconds": seconds, "peak_bytes": usage.ru_maxrss * UNIT} | {name: plan["search"][name] for name in kept}


def as_text(result: dict[str, Any]) -> str:
    lines = [f"{'':<44}{'s':>8}{'target':>8}{'x tiny':>8}{'MiB':>7}  status"]
    for part in result.values():
        lines += [_line(str(name), one) for name, one in part.items()] + [""]
    return "\n".join(lines)


def _line(name: str, one: dict[str, Any]) -> str:
    target = "" if one["target_seconds"] is None else f"{one['target_seconds']:g}"
    status = one["status"] if one["gap"] == 0 else f"{one['status']}, gap {one['gap']:.2%}"
    peak = one["peak_bytes"] / MIB
    return f"{name:<44}{one['seconds']:>8.2f}{target:>8}{one['of_tiny']:>8.1f}{peak:>7.0f}  {status}"


if __name__ == "__main__":
    main()
