"""A device plugin for the kubelet: one `nvidia.com/gpu`, with the device files of the machine.

`device_plugin FOLDER`, the folder of the kubelet's socket. Use it on a machine without access to
NVIDIA's own plugin. The few messages of the kubelet's API (v1beta1) are encoded by hand.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

PLUGIN_SOCKET = "hvd-gpu.sock"


def devices() -> list[str]:
    return [str(path) for path in sorted(Path("/dev").glob("nvidia*")) if not path.is_dir()]


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, value: str | bytes) -> bytes:
    """Return a field of protobuf that holds text or another message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def watch(_request: bytes, context: Any) -> Iterator[bytes]:
    yield field(1, field(1, "gpu-0") + field(2, "Healthy"))
    while context.is_active():
        time.sleep(1)


def allocate(_request: bytes, _context: Any) -> bytes:
    """Return the devices of the only container in a request: the kubelet sends one request for each
    container.
    """
    specs = b"".join(
        field(3, field(1, device) + field(2, device) + field(3, "rw")) for device in devices()
    )
    variable = field(1, field(1, "NVIDIA_VISIBLE_DEVICES") + field(2, "all"))
    return field(1, variable + specs)


def no_options(_request: bytes, _context: Any) -> bytes:
    """Return no options: the kubelet then calls no further method."""
    return b""


def main() -> None:
    folder = Path(sys.argv[1])
    bytes_only: Any = {"request_deserializer": bytes, "response_serializer": bytes}
    methods = {
        "Allocate": grpc.unary_unary_rpc_method_handler(allocate, **bytes_only),
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(no_options, **bytes_only),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(watch, **bytes_only),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8))
    handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
    server.add_generic_rpc_handlers([handler])
    (folder / PLUGIN_SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix://{folder / PLUGIN_SOCKET}")
    server.start()
    with grpc.insecure_channel(f"unix://{folder}/kubelet.sock") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=bytes,
            response_deserializer=bytes,
        )
        request = field(1, "v1beta1") + field(2, PLUGIN_SOCKET) + field(3, "nvidia.com/gpu")
        register(request, timeout=10)
    print("registered", devices(), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
