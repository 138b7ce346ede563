"""New projects: a script that trains without changes, a spec and a README."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from hvdchart.chart_files import app_version, read_example
from hvdchart.errors import FileError
from hvdchart.files import write_atomically
from hvdchart.script.default_images import choose_default_image
from hvdchart.spec import SPEC_NAME
from hvdchart.spec.load import parse_spec
from hvdchart.spec.yaml_tree import parse_document
from hvdchart.text import split_image


@dataclass(frozen=True)
class Template:
    """A kind of project: the example that becomes its script, its image and its command.

    The image is one of this repository, without its tag; public registries do not have it. Without
    a name, the image is the public image of the script's framework. `needs` lists what the script
    needs of another image.
    """

    name: str
    about: str
    example: str
    image: str
    needs: str
    arguments: tuple[str, ...] = ()
    # Files of the examples that the script imports.
    modules: tuple[str, ...] = ()


_DIGITS = ("--data", "/examples/digits.csv.gz")
# For a script that generates its own data.
_CPU_IMAGE = "horovod-cpu"
TEMPLATES = {
    template.name: template
    for template in (
        Template(
            "torchrun",
            "trains a small PyTorch network with DistributedDataParallel, as a script for torchrun",
            "digits_ddp.py",
            "",
            "PyTorch",
        ),
        Template(
            "benchmark",
            "measures samples per second with well-known networks and random data",
            "benchmark.py",
            _CPU_IMAGE,
            "Horovod with TensorFlow",
            ("--model", "mobilenet2", "--batch-size", "8", "--rounds", "5"),
        ),
        Template(
            "keras",
            "trains a small Keras network with Horovod, with checkpoints",
            "digits.py",
            "horovod-examples",
            f"Horovod with TensorFlow, and the file {_DIGITS[1]}",
            _DIGITS,
        ),
        Template(
            "unet",
            "trains a U-Net with Horovod, which finds white matter in slices of a brain scan",
            "unet.py",
            "horovod-examples",
            "Horovod with TensorFlow, and the folder /examples/mni152/white",
            ("--data", "/examples/mni152/white", "--filters", "8"),
            ("unet_data.py",),
        ),
        Template(
            "horovod-torch",
            "trains a small PyTorch network with Horovod, with checkpoints",
            "digits_torch.py",
            "horovod-examples-pytorch",
            f"Horovod with PyTorch, and the file {_DIGITS[1]}",
            _DIGITS,
        ),
    )
}
_SPEC_TEXT = """\
# What trains, and on which nodes. docs/spec.md lists all keys.
apiVersion: hvdchart/v1
name: {name}
nodes:
  # `hvdchart discover` writes this part for the nodes of a cluster.
  - name: worker
    count: 2              # Workers, with a rank on each of their sockets or GPUs.
    shared: true          # Others use the nodes as well: ranks are not bound to cores.
    coresPerSocket: 1
    memory: 3Gi
    tuning: {{cpu: 250m}}
image: {image}
volumes:
  # Checkpoints. On a volume that stays, such as {{pvc: my-claim}}, later runs continue from them.
  output: {{emptyDir: {{}}}}
train: {{command: [{command}]}}
"""
_README_TEXT = """\
# {name}

{about}.

    hvdchart doctor run.spec.yaml                 # is anything missing?
    hvdchart deploy .                             # train, and follow
    hvdchart status {name}                        # state, step, and what to do
    hvdchart undeploy {name}                      # remove the run
    hvdchart dev .                                # instead of deploy: train again at each save

The master copies the files of this folder to the pods, except those that `.hvdignore` names. The
image `{image}` must have what the script needs: {needs}.{more}
"""
_DOCKERFILE_TEXT = """\
# For packages of your own: add them to requirements.txt. `hvdchart deploy` builds the image.
FROM {image}
USER 0
COPY requirements.txt /tmp/
RUN pip install --no-cache-dir -r /tmp/requirements.txt
USER 1000
"""
_REQUIREMENTS_TEXT = "# Packages that the image does not have, one a line.\n"
_IGNORED = "README.md\n*.spec.yaml\n"
# With a Dockerfile, the packages are in the image; without it, the workers install them.
_IGNORED_WITH_IMAGE = "Dockerfile\n.dockerignore\nrequirements.txt\n"
# The master copies the code to the pods, so a change of the code needs no new image.
_NOT_IN_IMAGE = "*\n!requirements.txt\n"


def make_project(
    folder: Path, name: str, template: Template, image: str = "", *, has_dockerfile: bool = False
) -> list[Path]:
    """Write a new project to a folder that does not exist yet; return its files.

    `image` is a reference that replaces the template's image; with `has_dockerfile`, the project
    builds its own image from it. Raises FileError for a folder that exists or cannot be written,
    and SpecError, before anything is written, for a name that no run can have.
    """
    image = image or image_of(template)
    files = _make_files(name, template, image, has_dockerfile=has_dockerfile)
    parse_spec(files[SPEC_NAME], "the new spec")
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise FileError(f"{folder}: exists already; choose another name, or remove it") from error
    except OSError as error:
        raise FileError(f"{folder}: cannot create it: {error.strerror}") from error
    for file, content in files.items():
        write_atomically(folder / file, content)
    return [folder / file for file in files]


def _make_files(
    name: str, template: Template, image: str, *, has_dockerfile: bool
) -> dict[str, str]:
    """Return the files of a new project by their names."""
    shown_image = _image(image)
    package_files = "a `requirements.txt`"
    if has_dockerfile:
        # The project's own image, which `deploy` builds because it has no tag.
        shown_image = f"{{repository: {_quote(name)}}}   # REGISTRY/TEAM/NAME. deploy adds a tag."
        package_files = "`requirements.txt` and `Dockerfile`"
    words = ", ".join(["python", "train.py", *map(_quote, template.arguments)])
    more = f" Packages of your own go into {package_files}."
    about = f"It {template.about}"
    # Its docstring describes how to run it.
    files = {"train.py": read_example(template.example).replace(template.example, "train.py")}
    files |= {module: read_example(module) for module in template.modules}
    files[SPEC_NAME] = _SPEC_TEXT.format(name=_quote(name), image=shown_image, command=words)
    files["README.md"] = _README_TEXT.format(
        name=name, about=about, image=image, needs=template.needs, more=more
    )
    files[".hvdignore"] = _IGNORED
    if has_dockerfile:
        files[".hvdignore"] += _IGNORED_WITH_IMAGE
        files["Dockerfile"] = _DOCKERFILE_TEXT.format(image=image)
        files["requirements.txt"] = _REQUIREMENTS_TEXT
        files[".dockerignore"] = _NOT_IN_IMAGE
    return files


def image_of(template: Template) -> str:
    """Return a template's own image reference. Raises FileError for a broken installation."""
    if template.image:
        return f"{template.image}:{app_version()}"
    return choose_default_image([(template.example, "torch")], has_gpus=False).reference


def _image(reference: str) -> str:
    """Return the map of a spec's `image` for a reference, on one line."""
    shown = (f"{key}: {_quote(value)}" for key, value in split_image(reference).items())
    return f"{{{', '.join(shown)}}}"


def _quote(text: str) -> str:
    """Quote a word if necessary: YAML must read it as text, not as a number or a boolean."""
    is_word = re.fullmatch("[a-zA-Z][-a-zA-Z0-9]*", text) is not None
    return text if is_word and parse_document(text.encode(), "").plain == text else json.dumps(text)
