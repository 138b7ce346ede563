"""Proofs: what `python -m images prove` leaves in the folder of an image that no run of the tests
builds, since that takes too long. A proof says which content was built and what its tests found.
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
# Written by `python -m images prove {name}`, which builds the image and runs its tests inside it.
# `content` is a key of all that the image was built from.
"""
PRESENT = "for the present content"
AGED = "before the last change of its content"
_CONTENT = re.compile(r"[0-9a-f]{16}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Proof:
    content: str
    day: str  # of the calendar, in UTC
    reference: str
    versions: Mapping[str, str]
    bytes: int  # unpacked
    passed: int  # tests
    gpu: str  # the model that tests ran on; "none"
    needed_gpu: int  # tests that were left out, there being none

    def __post_init__(self) -> None:
        numbers = ("bytes", "passed", "needed_gpu")
        for item in fields(self):
            value = getattr(self, item.name)
            kind = dict if item.name == "versions" else int if item.name in numbers else str
            if type(value) is not kind:
                raise ValueError(f"{item.name} is {value!r}, expected {_WORDS[kind]}")
        if min(self.bytes, self.passed, self.needed_gpu + 1) <= 0:
            raise ValueError("bytes and passed are to be more than 0, needed_gpu 0 or more")
        if not _CONTENT.fullmatch(self.content):
            raise ValueError(f"content is {self.content!r}, expected 16 hexadecimal digits")
        if not _DAY.fullmatch(self.day):
            raise ValueError(f"day is {self.day!r}, expected YYYY-MM-DD")
        datetime.date.fromisoformat(self.day)


_WORDS = {str: "a text", int: "a whole number", dict: "a mapping"}


def write(image: Image, proof: Proof) -> Path:
    """Puts a proof where `read` finds it."""
    file = image.folder / FILE
    with file.open("w") as out:
        out.write(_HEAD.format(name=image.name))
        yaml = YAML(typ="safe")
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.dump(asdict(proof), out)
    return file


def read(image: Image) -> Proof:
    """The proof of an image that is tested apart. Raises ImageError when there is none, or none
    that can be one.
    """
    file = image.folder / FILE
    again = f"python -m images prove {image.name}"
    if not file.is_file():
        raise ImageError(f"{image.name} is tested apart, and has no {file}", again)
    try:
        written: Any = YAML(typ="safe").load(file)
        # What is no mapping, or has other keys, is a TypeError.
        proof = Proof(**written)
    except (TypeError, ValueError, YAMLError) as error:
        raise ImageError(f"{file} is no proof: {error}", again) from error
    else:
        return proof


def proved_for(proof: Proof, image: Image, images: Mapping[str, Image]) -> str:
    """In words, whether the image is still what was proved."""
    return PRESENT if proof.content == content_of(image, images) else AGED


def state(image: Image, images: Mapping[str, Image]) -> str:
    """In words, what is known of an image's tests."""
    if image.tested is When.ALWAYS:
        return "tested in every run"
    proof = read(image)
    return f"proved on {proof.day}, {proved_for(proof, image, images)}"
