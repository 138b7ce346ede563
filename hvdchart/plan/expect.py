"""What speed to expect on more hosts: a model of a step of data-parallel training. Pure.

A rank computes for some time, and the gradients of all ranks are averaged around a ring that
crosses each host's network once in each direction. Half of that time is hidden behind the backward
pass. docs/scaling.md compares the model with published figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Trainable weights. The networks of examples/benchmark.py, and ResNet-101.
PARAMETERS = {
    "resnet50": 25.6e6,
    "resnet101": 44.7e6,
    "inception3": 23.9e6,
    "vgg16": 138.4e6,
    "mobilenet2": 3.5e6,
    "bert": 109e6,
    "lstm": 49e6,
}
_BYTES = 4
# The ranks' gradients are sent in parts of this size at most: Horovod's fusion threshold.
_FUSED = 64 * 2**20
# The share of the communication that overlaps with the backward pass.
HIDDEN = 0.5
# Seconds for a message to the next rank, and what one stream of TCP reaches, in Gbit/s.
TCP_LATENCY = 30e-6
RDMA_LATENCY = 10e-6
TCP_LIMIT = 15.0


@dataclass(frozen=True)
class Work:
    """What a rank does in a step: its samples, and its samples per second when it is alone.

    `model` is one of PARAMETERS.
    """

    model: str
    batch_size: int
    speed: float

    @property
    def gradients(self) -> float:
        """The bytes that are averaged in each step."""
        return PARAMETERS[self.model] * _BYTES

    @property
    def seconds(self) -> float:
        """How long a step takes without communication."""
        return self.batch_size / self.speed


@dataclass(frozen=True)
class Network:
    """The network between the hosts; `gbit` is what each host's link carries, in Gbit/s."""

    gbit: float
    rdma: bool = False

    @property
    def bytes_per_second(self) -> float:
        """What a ring reaches in one direction."""
        usable = self.gbit if self.rdma else min(self.gbit, TCP_LIMIT)
        return usable * 1e9 / 8


def expect(work: Work, network: Network, hosts: int, ranks_per_host: int) -> float:
    """The speed of all ranks together, as a share of the ideal: 1.0 on a single host.

    The ideal is that of one rank alone, times their number.
    """
    if hosts < 2:
        return 1.0
    ranks = hosts * ranks_per_host
    # A ring of n ranks passes each part on 2 (n - 1) times: first to sum it, then to hand it out.
    hops = 2 * (ranks - 1)
    parts = math.ceil(work.gradients / _FUSED)
    sending = hops / ranks * work.gradients / network.bytes_per_second
    latency = RDMA_LATENCY if network.rdma else TCP_LATENCY
    exposed = (1 - HIDDEN) * (sending + hops * parts * latency)
    return work.seconds / (work.seconds + exposed)


def assumptions(work: Work, network: Network) -> list[str]:
    """What an expectation rests on, a line each."""
    kind = "RDMA" if network.rdma else f"TCP, of which a ring uses {TCP_LIMIT:.0f} Gbit/s at most"
    latency = RDMA_LATENCY if network.rdma else TCP_LATENCY
    return [
        f"{work.model}: {work.gradients / 1e6:.0f} MB of gradients in each step, in float32",
        f"a rank alone trains {work.speed:g} samples/s with batches of {work.batch_size}: "
        f"{work.seconds:.3f} s for a step",
        f"each host has a link of {network.gbit:g} Gbit/s ({kind}) that nobody else uses",
        f"{latency * 1e6:.0f} us for each message; half of the communication is hidden",
        "communication within a host costs nothing, all ranks are equally fast, and reading data "
        "keeps up",
    ]
