"""Proofs of images that take too long to be built and tested in every run. A proof records which
content `python -m images prove` built, and the results of its tests.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from devtools.common.errors import ImageError
from devtools.images.catalogue import Image, When
from devtools.images.content import content_of

FILE = "proof.yaml"
_HEAD = """\
# Written by `python -m images prove {name}`, which builds the image and runs its tests in it.
# `content` is a key of the content that the image was built from.
"""
PRESENT = "for the present content"
AGED = "before the last change of its content"
_CONTENT = re.compile(r"[0-9a-f]{16}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Proof:
    content: str
    day: str  # YYYY-MM-DD, in UTC
    reference: str
    versions: Mapping[str, str]
    bytes: int  # unpacked
    passed: int  # number of tests
    gpu: str  # the model that tests ran on, or "none"
    needed_gpu: int  # number of tests that were skipped without a GPU

    def __post_init__(self) -> None:
        numbers = ("bytes", "passed", "needed_gpu")
        for item in fields(self):
            value = getattr(self, item.name)
            kind = dict if item.name == "versions" else int if item.name in numbers else str
            if type(value) is not kind:
                raise ValueError(f"{item.name} is {value!r}, expected {_WORDS[kind]}")
        if min(self.bytes, self.passed, self.needed_gpu + 1) <= 0:
            raise ValueError("bytes and passed must be more than 0, needed_gpu must be 0 or more")
        if not _CONTENT.fullmatch(self.content):
            raise ValueError(f"content is {self.content!r}, expected 16 hexadecimal digits")
        if not _DAY.fullmatch(self.day):
            raise ValueError(f"day is {self.day!r}, expected YYYY-MM-DD")
        datetime.date.fromisoformat(self.day)


_WORDS = {str: "text", int: "an integer", dict: "a mapping"}


def write(image: Image, proof: Proof) -> Path:
    """Writes a proof into the image's folder."""
    file = image.folder / FILE
    with file.open("w") as out:
        out.write(_HEAD.format(name=image.name))
        yaml = YAML(typ="safe")
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.dump(asdict(proof), out)
    return file


def read(image: Image) -> Proof:
    """The proof of an image. Raises ImageError when it is missing or malformed."""
    file = image.folder / FILE
    again = f"python -m images prove {image.name}"
    if not file.is_file():
        raise ImageError(f"{image.name} is tested separately and has no {file}", again)
    try:
        written: Any = YAML(typ="safe").load(file)
        # Other keys, or anything but a mapping, are a TypeError.
        proof = Proof(**written)
    except (TypeError, ValueError, YAMLError) as error:
        raise ImageError(f"{file} is not a proof: {error}", again) from error
    else:
        return proof


def proof_state(proof: Proof, image: Image, images: Mapping[str, Image]) -> str:
    """PRESENT, or AGED when the image has changed since."""
    return PRESENT if proof.content == content_of(image, images) else AGED


def state(image: Image, images: Mapping[str, Image]) -> str:
    """A description of how an image is tested."""
    if image.tested is When.ALWAYS:
        return "tested in every run"
    proof = read(image)
    return f"proved on {proof.day}, {proof_state(proof, image, images)}"
