"""How many configurations of Llama 3.1 405B on 16,384 GPUs are costed in a second, and in how much memory.

Every measurement is a process of its own with one thread: see README.md.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
FUNCTIONS = ("lower_bounds", "stage_costs", "evaluate")
SIZES = (10_000, 100_000, 1_000_000)
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--count", type=int, default=200_000, help="configurations that rates are measured with")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=SIZES, help="configurations that memory is measured with"
    )
    arguments = parser.parse_args()
    result = measure(count=arguments.count, sizes=arguments.sizes)
    print(json.dumps(result, indent=2) if arguments.json else as_text(result))


def measure(*, count: int, sizes: list[int]) -> dict[str, Any]:
    """Return rates by function, and peak memory by function and number of configurations."""
    return {
        "rates": _run("benchmarks.rates", count),
        "peak_bytes": {name: {size: _run("benchmarks.peak", name, size) for size in sizes} for name in FUNCTIONS},
    }


def _run(module: str, *arguments: object) -> Any:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def as_text(result: dict[str, Any]) -> str:
    lines = ["one at a time or together          configurations/s    x simulation"]
    for name, rate in result["rates"].items():
        lines.append(f"{name:<32}{rate['per_second']:>19,.0f}{rate['of_simulation']:>16,.1f}")
    lines += ["", "peak memory of the process, MiB" + "".join(f"{size:>14,}" for size in _sizes(result))]
    for name, peaks in result["peak_bytes"].items():
        lines.append(f"{name:<31}" + "".join(f"{peak['total'] / MIB:>14,.0f}" for peak in peaks.values()))
    return "\n".join(lines)


def _sizes(result: dict[str, Any]) -> list[int]:
    return [int(size) for size in next(iter(result["peak_bytes"].values()))]


if __name__ == "__main__":
    main()
