import json

from autoplan.cli.demo import _verdict
from tests.commands import run_autoplan


def test_the_whole_loop(tmp_path):
    done = run_autoplan("demo", "--steps", "3", "--dir", "here", "--json", folder=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["ranks"] >= 2
    assert len(figures["losses"]) == figures["steps"] == 3
    assert figures["losses"][-1] < figures["losses"][0]
    for measured in ("step_seconds", "peak_memory_bytes"):
        assert figures[measured]["measured"] > 0
        assert figures[measured]["predicted"] > 0
    assert json.loads((tmp_path / "here" / "plan.json").read_text())["inputs"]["profile"] is not None
    assert json.loads((tmp_path / "here" / "demo.json").read_text()) == figures
    assert "training with dp_replicate" in done.stderr
    for verb in ("profile", "serve", "run"):
        assert f"$ autoplan {verb}" in done.stderr


def test_the_verdict_says_where_the_measured_time_lies():
    predicted = {"low": 1.0, "high": 2.0}
    assert "within" in _verdict({**predicted, "measured": 1.5})
    assert "above" in _verdict({**predicted, "measured": 2.5})
    assert "below" in _verdict({**predicted, "measured": 0.5})
