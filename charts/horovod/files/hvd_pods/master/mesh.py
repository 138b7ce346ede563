"""Ends the service mesh's proxy with the run: otherwise it would keep the master's pod running."""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException
from typing import Mapping

from hvd_pods.common.reporting import log

# Port on the pod's loopback interface -> path of the request to end: Istio's proxy and Linkerd's.
PROXIES = {15020: "/quitquitquit", 4191: "/shutdown"}


def end_proxy(
    proxies: Mapping[int, str] = PROXIES, environment: Mapping[str, str] = os.environ
) -> None:
    """Ask each proxy in this pod to end, if the chart says that the pod waits for one."""
    if environment.get("HVD_MESH") != "Hold":
        return
    for port, path in proxies.items():
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", path)
            status = connection.getresponse().status
        except (OSError, HTTPException):
            # This pod has no proxy of that mesh.
            continue
        finally:
            connection.close()
        log(f"asked the mesh's proxy to end (POST {path}): it answered {status}")
