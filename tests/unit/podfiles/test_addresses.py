"""Pods' addresses out of EndpointSlices."""

from __future__ import annotations

import itertools
from typing import Any

import addresses


def endpoint_slice(family: str, address: str) -> dict[str, Any]:
    """One family's slice, with one pod."""
    target = {"kind": "Pod", "name": "hvd-worker-0"}
    return {"addressType": family, "endpoints": [{"addresses": [address], "targetRef": target}]}


def test_of_two_families_ipv4_is_taken_whatever_the_order() -> None:
    both = [endpoint_slice("IPv4", "10.0.0.7"), endpoint_slice("IPv6", "fd00::7")]
    for order in itertools.permutations(both):
        assert addresses.pod_addresses(order) == {"hvd-worker-0": "10.0.0.7"}
    assert addresses.pod_addresses(both[1:]) == {"hvd-worker-0": "fd00::7"}
