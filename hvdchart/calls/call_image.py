"""Choose the image for a caller's functions, and find modules that the ranks lack."""

from __future__ import annotations

import dataclasses
import dis
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from hvd_pods.shared.pip_output import REQUIREMENTS
from hvdchart.errors import CallError, SpecError
from hvdchart.script.default_images import DefaultImage, choose_default_image, find_image_python
from hvdchart.script.options import ScriptRun
from hvdchart.script.spec_tree import make_script_tree
from hvdchart.script.wording import rephrase_for_launch
from hvdchart.spec.load import read_spec
from hvdchart.spec.model import Spec

# The oldest Python that this program supports.
_OLDEST_PYTHON = (3, 11)
# Where pip installs modules.
_INSTALLED = {"site-packages", "dist-packages"}


def find_imports(code: CodeType) -> Iterator[str]:
    """Yield the modules that a function imports when it is called.

    This includes the modules that functions inside of it import.
    """
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and instruction.argval:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from find_imports(constant)


def is_installed(file: str) -> bool:
    """Return whether pip has installed a file."""
    return not _INSTALLED.isdisjoint(Path(file).parts)


def check_python(theirs: Sequence[int], image: DefaultImage | None = None) -> None:
    """Raise CallError for an image whose Python cannot run functions of this program.

    `image` is the public image that was chosen, if any.
    """
    version = sys.version_info[:2]
    if tuple(theirs) == version:
        return
    their_version = ".".join(map(str, theirs))
    our_version = ".".join(map(str, version))
    named = f"image {image.reference}, because {image.reason}," if image else "the image"
    remedy = f"name an image with Python {our_version} (image=, or that of the spec)"
    if tuple(theirs) >= _OLDEST_PYTHON:
        remedy = f"run this program with Python {their_version}, or {remedy}"
    if image and image.for_callers:
        remedy += f", such as {image.for_callers}"
    elif image:
        remedy += (
            f"; for instance image='python:{our_version}-slim', with code= of a folder whose "
            f"{REQUIREMENTS} names what the function uses"
        )
    raise CallError(
        f"{named} has Python {their_version}, and this program has Python {our_version}: both need "
        f"the same minor version to share functions; {remedy}"
    )


def users_modules(modules: Iterable[str]) -> dict[str, Path]:
    """Return the modules that are neither installed nor Python's own, and the folder of each."""
    folders = {}
    for name in sorted({module.partition(".")[0] for module in modules}):
        if name in sys.stdlib_module_names or name == "__main__":
            continue
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            # The rank reports the error.
            continue
        if spec and spec.has_location and spec.origin and not is_installed(spec.origin):
            # The folder of a package is the parent of the package's own folder.
            folder = Path(spec.origin).parent
            folders[name] = folder.parent if spec.submodule_search_locations else folder
    return folders


@dataclass
class OwnRun:
    """The run of a caller without a spec.

    Without a named image, the run uses a public image of a framework: the framework of the newest
    function, of an earlier function, or of the program, in that order.
    """

    run: ScriptRun
    program: tuple[str, ...]
    # The modules that the functions use, the newest function first.
    functions: tuple[frozenset[str], ...] = ()

    @property
    def image(self) -> DefaultImage | None:
        """Return the public image; None where the user names an image."""
        if self.run.image:
            return None
        uses = [[("the function", module) for module in sorted(used)] for used in self.functions]
        uses.append([("this program", module) for module in self.program])
        return choose_default_image(
            *uses, has_gpus=bool(self.run.gpus), python=sys.version_info[:2]
        )

    def use(self, modules: frozenset[str]) -> None:
        """Add the modules that a call uses.

        Raises CallError, and adds nothing, if the image would then have another Python.
        """
        named = find_image_python(self.run.image or "")
        if named:
            check_python(named)
        before = self.functions
        self.functions = tuple(dict.fromkeys((modules, *before)))
        image = self.image
        if image and image.python:
            try:
                check_python(image.python, image)
            except CallError:
                self.functions = before
                raise

    def spec(self) -> Spec:
        """Return the spec of the run. Raises SpecError for a wrong setting."""
        image = self.image
        if image:
            image = dataclasses.replace(image, has_mpi=True)
        try:
            return read_spec(make_script_tree(self.run, image))
        except SpecError as error:
            # The line number of the options' error does not refer to a file of the user.
            raise rephrase_for_launch(error, self.run) from None
