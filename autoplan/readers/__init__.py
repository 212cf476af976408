"""Readers: arguments, files and presets as values of `autoplan.spec`; no search, no torch."""

from autoplan.readers.clusters import cluster_presets, load_cluster, parse_cluster
from autoplan.readers.devices import DevicePreset, device_preset, device_presets, nearest_device
from autoplan.readers.models import load_model, model_presets, parse_model
from autoplan.readers.nodes import change_nodes
from autoplan.readers.notices import ReaderWarning
from autoplan.readers.saved import load_plan, load_profile

__all__ = [
    "DevicePreset",
    "ReaderWarning",
    "change_nodes",
    "cluster_presets",
    "device_preset",
    "device_presets",
    "load_cluster",
    "load_model",
    "load_plan",
    "load_profile",
    "model_presets",
    "nearest_device",
    "parse_cluster",
    "parse_model",
]
