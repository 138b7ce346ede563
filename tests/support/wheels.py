"""Small wheels, and a package index on the loopback that records its requests."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str = "1.0", needs: Sequence[str] = ()) -> Path:
    """Write the wheel of a module with this name and version, and return its path.

    needs: the requirements of the package.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    return path


class Index:
    """A package index: `url`, and the requested paths."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = list[str]()
        self.url = ""

    def add(self, name: str, version: str = "1.0", needs: Sequence[str] = ()) -> None:
        """Add the wheel of make_wheel, also beside other versions of it."""
        wheel = make_wheel(self.folder / "simple" / name, name, version, needs)
        page = f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>\n'
        with (wheel.parent / "index.html").open("a") as file:
            file.write(page)


@contextmanager
def serve_index(folder: Path) -> Iterator[Index]:
    """Serve an index from this folder until the end of the block."""
    index = Index(folder)

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            index.asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield index
        server.shutdown()
