"""The growth of searches as a page: seconds against devices and against layers, both on logarithmic scales."""

from pathlib import Path
from typing import Any

AXES = {"by_devices": "devices", "by_layers": "layers"}


def write_plot(result: dict[str, Any], path: Path) -> None:
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots

    figure: Figure = make_subplots(
        rows=1, cols=2, subplot_titles=[f"whole process by {axis}" for axis in AXES.values()]
    )
    for column, (name, axis) in enumerate(AXES.items(), start=1):
        sizes, runs = list(result[name]), list(result[name].values())
        seconds = [run["seconds"] for run in runs]
        linear = [seconds[0] * size / sizes[0] for size in sizes]
        for label, values in (("measured", seconds), ("linear", linear)):
            figure.add_trace(
                Scatter(x=sizes, y=values, name=f"{label}, {axis}", mode="lines+markers"), row=1, col=column
            )
        figure.update_xaxes(type="log", title=axis, row=1, col=column)
        figure.update_yaxes(type="log", title="seconds", row=1, col=column)
    figure.write_html(path, include_plotlyjs=True)
