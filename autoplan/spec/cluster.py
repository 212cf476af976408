"""What it is trained on: devices, nodes and links. A CPU rank is a device too."""

from dataclasses import field
from typing import Literal

from autoplan.errors import ClusterError
from autoplan.spec.value import Count, Name, NonNegative, NonNegativeFloat, Positive, Share, Size, value

MOST_DEVICES = 2**20
NodeOrder = tuple[tuple[NonNegative, Count], ...]
"""Runs of nodes, first node and number of nodes, in the order in which ranks fill them."""


@value
class Device:
    """One accelerator, or one rank's share of a CPU.

    `peak_flops` maps a precision (bf16, fp16, fp32, fp8, mxfp8, nvfp4) to dense FLOP/s, and `matmul_efficiency` to the
    share of it that the best matrix products were measured to reach (left out: the architecture's). `architecture`
    is the maker's name of the generation (ampere, hopper, blackwell, cdna3, …). `reserved_bytes` is what the runtime
    takes before the first tensor; `sources` says where each figure comes from.
    """

    slug: Name
    kind: Literal["cuda", "cpu"]
    architecture: Name | None = None
    memory_bytes: Count
    reserved_bytes: NonNegative = 0
    memory_bytes_per_second: Positive
    peak_flops: dict[str, Positive]
    matmul_efficiency: dict[str, Share] = field(default_factory=dict)
    power_watts: Positive | None = None
    idle_power_watts: NonNegativeFloat | None = None
    price_per_hour: NonNegativeFloat | None = None
    sources: dict[str, str]

    def __post_init__(self) -> None:
        if self.reserved_bytes >= self.memory_bytes:
            raise ClusterError(f"reserved_bytes leaves nothing of memory_bytes {self.memory_bytes}")
        if not self.peak_flops:
            raise ClusterError("peak_flops is empty")


@value
class Link:
    """A link as one rank sees it: seconds per message, and bytes per second in each direction."""

    latency_seconds: NonNegativeFloat
    bytes_per_second: Positive


@value
class Derate:
    """The shares of their nominal speed that slow nodes reach: computing, and sending over any link."""

    compute: Share = 1.0
    links: Share = 1.0


@value
class NodeGroup:
    """Nodes that are alike; `inter_node` is one device's share of its node's network.

    Devices and links are given as they are when nothing is wrong with them, `derate` says what these nodes reach of it.
    """

    device: Device
    num_nodes: Size
    devices_per_node: Size
    intra_node: Link
    inter_node: Link
    derate: Derate = Derate()

    @property
    def num_devices(self) -> int:
        """The number of devices in all nodes of the group."""
        return self.num_nodes * self.devices_per_node


@value
class Cluster:
    """Groups of nodes; ranks are numbered node by node in the order of the groups."""

    schema: Literal["autoplan.cluster/1"] = "autoplan.cluster/1"
    name: Name
    groups: tuple[NodeGroup, ...]

    def __post_init__(self) -> None:
        if not self.groups:
            raise ClusterError("groups is empty: a cluster has at least one node")
        if len({group.device.kind for group in self.groups}) > 1:
            raise ClusterError("groups mix cpu and cuda devices")
        if self.num_devices > MOST_DEVICES:
            raise ClusterError(f"{self.num_devices} devices are more than the {MOST_DEVICES} that are planned for")

    @property
    def num_devices(self) -> int:
        """The number of devices, which is the number of ranks."""
        return sum(group.num_devices for group in self.groups)

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return sum(group.num_nodes for group in self.groups)

    @property
    def device_kind(self) -> Literal["cuda", "cpu"]:
        """The kind that all devices share."""
        return self.groups[0].device.kind
