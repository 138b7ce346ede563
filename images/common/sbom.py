"""Prints what an image is made of as a CycloneDX document in JSON: Debian's packages and Python's.

`sbom.py NAME REFERENCE`, run by the image's own interpreter; standard library only, so that any
image with Python can tell. No time and no serial number is in it: the same packages give the same
text. https://cyclonedx.org/docs/1.6/json/ is the standard, https://github.com/package-url/purl-spec
the one for `purl`.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

_FIELDS = ("binary:Package", "Version", "Architecture", "source:Package", "source:Version")
Component = dict[str, object]


def debian_components(listing: str, release: str) -> list[Component]:
    """The packages of `dpkg-query`'s output: a line each, _FIELDS with tabs between. `release` is
    that of Debian or Ubuntu, e.g. debian-12.
    """
    distribution = release.partition("-")[0]
    found: list[Component] = []
    for line in listing.splitlines():
        name, version, architecture, source, source_version = line.split("\t")
        # Packages for several architectures are listed as name:architecture.
        name = name.partition(":")[0]
        # Debian's advisories are about source packages.
        origin = f"{source}@{source_version}"
        qualifiers = f"arch={architecture}&distro={release}&upstream={quote(origin, safe='')}"
        purl = f"pkg:deb/{distribution}/{quote(name)}@{quote(version, safe='')}?{qualifiers}"
        found.append(_component(name, version, purl))
    return found


def python_components() -> list[Component]:
    """What is installed for this interpreter; a package that is there twice is listed once."""
    found: dict[str, Component] = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        version = distribution.version
        found.setdefault(name, _component(name, version, f"pkg:pypi/{name}@{quote(version)}"))
    return list(found.values())


def document(name: str, version: str, components: list[Component]) -> Component:
    """The CycloneDX document of an image."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": sorted(components, key=lambda component: str(component["purl"])),
    }


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def release() -> str:
    """The release as a purl has it, e.g. debian-12."""
    lines = Path("/etc/os-release").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return "-".join(values.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))


def main(name: str, version: str) -> None:
    components = python_components()
    if shutil.which("dpkg-query"):
        shown = "\t".join(f"${{{field}}}" for field in _FIELDS) + "\n"
        query = ["dpkg-query", "--show", f"--showformat={shown}"]
        listing = subprocess.run(query, check=True, capture_output=True, text=True).stdout
        components += debian_components(listing, release())
    print(json.dumps(document(name, version, components), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
