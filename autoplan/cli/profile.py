"""`autoplan profile`: measure this node, or all nodes when torchrun started this."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoplan.cli.options import JsonOption
from autoplan.cli.output import console, progress_bar, say, write_text

if TYPE_CHECKING:
    from autoplan.spec import Device, ModelSpec, Profile

EXAMPLE = "autoplan profile --quick --model llama-15m --out profile.json"
CORES_PER_RANK, MOST_CPU_RANKS = 4, 8


def command(
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the profile goes.")] = Path("profile.json"),
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc", min=1, help="Ranks to measure with. Default: one a CUDA device, or 2 to 8 by the CPU's cores."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: under a minute.")] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Measure this model's layers. Default: a set of sizes."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="Preset of this hardware. Default: found by its name."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure layers, links, memory and contention of this node, or of all nodes when under torchrun."""
    from autoplan.readers import load_model
    from autoplan.spec.codec import to_json

    profile = measure(
        nproc=nproc, quick=quick, model=None if model is None else load_model(model), device=find_device(device)
    )
    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun one rank speaks for all
    text = to_json(profile)
    write_text(out, text + "\n")
    say(f"profile written to {out}")
    if as_json:
        typer.echo(text)
    else:
        render(profile)


def measure(*, nproc: int | None, quick: bool, model: "ModelSpec | None", device: "Device | None") -> "Profile":
    """Return the profile of this node, with a progress bar; see `profile_node` for the errors."""
    from autoplan.profiler import profile_node

    num_ranks = nproc or default_ranks(device)
    with progress_bar() as progress:
        task = progress.add_task("starting", total=1.0)

        def show(text: str, fraction: float) -> None:
            progress.update(task, description=text, completed=fraction)

        return profile_node(num_ranks=num_ranks, quick=quick, model=model, device=device, on_progress=show)


def find_device(slug: str | None) -> "Device | None":
    """Return the preset of `slug`, or, without one, that of this machine's first CUDA device where both exist.

    Raises ClusterError for a slug that no preset has.
    """
    import torch

    from autoplan.readers import device_preset, device_presets

    if slug is not None:
        return device_preset(slug, where="--device").device
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name(0)
    presets = (device_preset(known) for known in device_presets())
    return next((preset.device for preset in presets if name in preset.cuda_names), None)


def default_ranks(device: "Device | None") -> int:
    """Return one rank for every CUDA device, or on a CPU one for every four cores, 2 at least and 8 at most."""
    import torch

    from autoplan.profiler.devices import num_cores

    if (device is None or device.kind == "cuda") and torch.cuda.is_available():
        return torch.cuda.device_count()
    return max(2, min(MOST_CPU_RANKS, num_cores() // CORES_PER_RANK))


def render(profile: "Profile") -> None:
    """Write what was measured, in a few lines."""
    from rich.table import Table

    from autoplan.units import format_bytes, format_seconds

    out, group = console(), profile.cluster.groups[0]
    out.print(f"{profile.provenance.device_name}: {profile.provenance.num_ranks} ranks, cluster {profile.cluster.name}")
    for precision, rate in group.device.peak_flops.items():
        out.print(f"matmul {precision}: {rate / 1e9:.4g} GFLOP/s a rank")
    out.print(
        f"memory: {format_bytes(group.device.memory_bytes)} a rank, "
        f"{format_bytes(group.device.memory_bytes_per_second)}/s"
    )
    table = Table("collective", "ranks", "latency", "bandwidth", "error of the fit", box=None, padding=(0, 2, 0, 0))
    for fit in profile.fits:
        table.add_row(
            fit.op,
            str(fit.num_ranks),
            format_seconds(fit.latency_seconds),
            f"{format_bytes(fit.bytes_per_second)}/s",
            f"{fit.error:.0%}",
        )
    out.print(table)
    out.print(f"{len(profile.layers)} layer timings, {len(profile.matmuls)} matmul timings")
