"""Ending the service mesh's proxy with the run: it would keep the master's pod alive for ever."""

from __future__ import annotations

import http.client
import os
from typing import Mapping

from settings import log

# Port in the pod itself -> path of the request to end: Istio's proxy and Linkerd's.
PROXIES = {15020: "/quitquitquit", 4191: "/shutdown"}


def end_proxy(
    proxies: Mapping[int, str] = PROXIES, environment: Mapping[str, str] = os.environ
) -> None:
    """Ask each proxy that is there to end, when the chart says that one is held for the run."""
    if environment.get("HVD_MESH") != "Hold":
        return
    for port, path in proxies.items():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            # That mesh has no proxy here.
            continue
        finally:
            connection.close()
        log(f"the mesh's proxy was asked to end ({path}): it answered {status}")
