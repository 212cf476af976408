"""`autoplan demo`: the whole loop on this machine, by the verbs and the service that everybody uses."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from autoplan.cli.children import run_verb, running_verb, sigterm_as_interrupt
from autoplan.cli.client import Client
from autoplan.cli.options import JsonOption
from autoplan.cli.output import console, print_json, say, write_text
from autoplan.errors import PlanError, RunError

EXAMPLE = "autoplan demo --dir autoplan-demo"
MODEL = "llama-15m"
GLOBAL_BATCH, SEQ_LEN = 8, 256


def command(
    *,
    folder: Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="Where everything goes.")] = Path(
        "autoplan-demo"
    ),
    steps: Annotated[int, typer.Option("--steps", min=2, help="Training steps.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Profile this machine, start the service, POST a config.json to it, and train the plan on real text.

    How long it takes depends on the machine: about two minutes on two idle cores. Everything is written into
    the folder, and it may be run again.
    """
    with sigterm_as_interrupt():
        figures = Demo(folder).run(steps)
    write_text(folder / "demo.json", json.dumps(figures, indent=2) + "\n")
    if as_json:
        print_json(figures)
    else:
        _render(figures)


@dataclass(frozen=True, slots=True)
class Demo:
    """The steps of the loop, each leaving its result in `folder`."""

    folder: Path

    def run(self, steps: int) -> dict[str, Any]:
        """Go round the loop once and return its figures; raises RunError where a part fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        started = perf_counter()
        profile = self.profile()
        profiled = perf_counter()
        plan = self.plan(profile)
        planned = perf_counter()
        run = self.train(plan, steps)
        seconds = {"profile": profiled - started, "plan": planned - profiled, "run": perf_counter() - planned}
        return {**_figures(plan, run), "losses": _losses(Path(run["run_dir"])), "seconds": seconds}

    def profile(self) -> Any:
        """Measure this machine with the default ranks, for the demo's model."""
        return run_verb(["profile", "--quick", "--model", MODEL, "--out", str(self.folder / "profile.json")])

    def plan(self, profile: Any) -> Any:
        """Start the service, hand it the profile, POST the model's config.json, and keep the plan."""
        from autoplan.readers.documents import preset_text

        config = preset_text("models", MODEL)
        write_text(self.folder / "config.json", config)
        database = f"sqlite:///{(self.folder / 'service.db').resolve()}"
        log = self.folder / "service.log"
        with running_verb(["serve", "--port", "0", "--database", database, "--json"], log=log) as service:
            assert service.stdout is not None
            client = Client(_read_url(service.stdout.readline(), log))
            request = {
                "model": json.loads(config),
                "cluster": client.store_profile(profile),
                "workload": {"global_batch": GLOBAL_BATCH, "seq_len": SEQ_LEN},
                "options": {"runnable_only": True},
            }
            plan = client.plan(request)
        write_text(self.folder / "plan.json", json.dumps(plan, indent=2) + "\n")
        return plan

    def train(self, plan: Any, steps: int) -> Any:
        """Train the plan over the standard library's source; returns what `autoplan run --json` prints."""
        from autoplan.cli.render import describe_configuration
        from autoplan.spec import Configuration
        from autoplan.spec.codec import from_jsonable

        configuration = from_jsonable(Configuration, plan["configuration"], where="configuration", error=PlanError)
        say(f"training with {describe_configuration(configuration)}")
        run_dir = self.folder / "runs" / f"{plan['id'][:12]}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        return run_verb(["run", str(self.folder / "plan.json"), "--steps", str(steps), "--run-dir", str(run_dir)])


def _read_url(line: bytes, log: Path) -> str:
    if not line.strip():
        raise RunError(f"the service did not start; {log} says why")
    return str(json.loads(line)["url"])


def _losses(run_dir: Path) -> list[float]:
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def _figures(plan: Any, run: Any) -> dict[str, Any]:
    estimate = plan["estimate"]
    return {
        "plan_id": plan["id"],
        "configuration": plan["configuration"],
        "precision": plan["workload"]["precision"],
        "ranks": run["ranks"],
        "steps": run["last_step"],
        "loss": {"first": run["first_loss"], "last": run["last_loss"]},
        "step_seconds": {
            "predicted": estimate["step_seconds"],
            "low": estimate["step_seconds_low"],
            "high": estimate["step_seconds_high"],
            "measured": run["step_seconds"],
        },
        "peak_memory_bytes": {"predicted": estimate["peak_memory_bytes"], "measured": run["peak_memory_bytes"]},
        "run_dir": run["run_dir"],
    }


def _verdict(step: dict[str, float]) -> str:
    """Say whether the measured step time lies within the predicted range."""
    if step["low"] <= step["measured"] <= step["high"]:
        return "the measured step time lies within the predicted range"
    side = "below" if step["measured"] < step["low"] else "above"
    return (
        f"the measured step time lies {side} the predicted range; "
        "the usual reason is a machine that was busy with other things while it was profiled or while it trained"
    )


def _render(figures: dict[str, Any]) -> None:
    from rich.table import Table

    from autoplan.units import format_bytes, format_seconds

    out, step, memory = console(), figures["step_seconds"], figures["peak_memory_bytes"]
    losses = figures["losses"]
    shown = sorted({*range(0, len(losses), max(1, len(losses) // 8)), len(losses) - 1})
    out.print("loss falls: " + ", ".join(f"step {index + 1} {losses[index]:.3f}" for index in shown))
    table = Table("", "predicted", "range", "measured", box=None, padding=(0, 2, 0, 0))
    table.add_row(
        "step time",
        format_seconds(step["predicted"]),
        f"{format_seconds(step['low'])} to {format_seconds(step['high'])}",
        format_seconds(step["measured"]),
    )
    measured_peak = "unknown" if memory["measured"] is None else format_bytes(memory["measured"])
    table.add_row("peak memory of a rank", format_bytes(memory["predicted"]), "", measured_peak)
    out.print(table)
    out.print(_verdict(step))
    taken = ", ".join(f"{part} {format_seconds(seconds)}" for part, seconds in figures["seconds"].items())
    out.print(f"took: {taken}; profile, plan and metrics are in {Path(figures['run_dir']).parent.parent}")
