"""Runs autoplan as a user does: as a process of its own, from a folder of the user's."""

import os
import subprocess
import sys
from pathlib import Path

MODULE = (sys.executable, "-m", "autoplan")
SCRIPT = (str(Path(sys.executable).parent / "autoplan"),)


def run_autoplan(
    *arguments: str, folder: Path, command: tuple[str, ...] = MODULE, timeout: float = 300
) -> "subprocess.CompletedProcess[str]":
    """Run ``autoplan ARGUMENTS`` in `folder` to its end."""
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=timeout
    )


def environment(folder: Path) -> dict[str, str]:
    """Return this process's environment without a safe path, the service's data and settings kept in `folder`."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("AUTOPLAN_", "PYTHONSAFE"))}
    return {**inherited, "XDG_DATA_HOME": str(folder / "data"), "OMP_NUM_THREADS": "1"}


def tiny_config() -> dict[str, object]:
    """Return a Hugging Face config.json of a model that trains in milliseconds on bytes."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
