"""Choose the proxy of a request as Go programs such as kubectl and Helm do."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

import urllib3

from hvdchart.errors import ClusterError

# An entry of NO_PROXY with a port; an IPv6 address is in brackets.
_WITH_PORT = re.compile(r"(\[[^]]*\]|[^:]*):([^:]*)")


def proxy_manager(server: str, proxy: str, **options: Any) -> urllib3.PoolManager:
    """Connect to `server` through the kubeconfig's `proxy`, or else through the environment's.

    The environment's is HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY names the server. `options` are
    those of urllib3. Raises ClusterError for a proxy that cannot be used.
    """
    parts = urlsplit(server)
    chosen = proxy
    if not proxy and not _is_direct(parts, _variable("no_proxy")):
        chosen = _variable(f"{parts.scheme}_proxy")
        if chosen and "://" not in chosen:
            chosen = f"http://{chosen}"
    if not chosen:
        return urllib3.PoolManager(**options)
    try:
        if chosen.startswith("socks"):
            from urllib3.contrib.socks import SOCKSProxyManager

            return SOCKSProxyManager(chosen, **options)
        return urllib3.ProxyManager(chosen, **options)
    except (ValueError, ImportError, urllib3.exceptions.HTTPError) as error:
        secret = chosen.rpartition("@")[0].rpartition("://")[2]
        reason = str(error).replace(secret, "...") if secret else error
        raise ClusterError(f"the proxy {drop_password(chosen)} cannot be used: {reason}") from None


def drop_password(url: str) -> str:
    """Return a URL for a message: without a user's name and password."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _variable(name: str) -> str:
    """Return a variable in upper or lower case; empty without it."""
    return os.environ.get(name.upper()) or os.environ.get(name) or ""


def _is_direct(server: SplitResult, rules: str) -> bool:
    """Return whether NO_PROXY or Go itself exempts a server from the proxy.

    `rules` is the content of NO_PROXY.
    """
    host = server.hostname or ""
    port_of_server = re.search(r":(\d+)$", server.netloc)
    port = port_of_server[1] if port_of_server else {"https": "443"}.get(server.scheme, "80")
    address = None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host == "localhost":
            return True
    if address and address.is_loopback:
        return True
    return any(_matches(host, port, address, rule.strip().lower()) for rule in rules.split(","))


def _matches(host: str, port: str, address: Any, rule: str) -> bool:
    """Return whether an entry of NO_PROXY matches a host and its port.

    An entry is *, a network, or an address or a name with or without a port. A name stands for the
    domains below it, too; .domain and *.domain stand for these alone.
    """
    if rule == "*":
        return True
    if address and "/" in rule:
        try:
            return address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    with_port = _WITH_PORT.fullmatch(rule)
    name, of_port = with_port.groups() if with_port else (rule, "")
    name = name.strip("[]").removeprefix("*" if name.startswith("*.") else "")
    if not name or of_port not in ("", port):
        return False
    try:
        return bool(address == ipaddress.ip_address(name))
    except ValueError:
        return (host == name and name[0] != ".") or host.endswith(f".{name.removeprefix('.')}")
