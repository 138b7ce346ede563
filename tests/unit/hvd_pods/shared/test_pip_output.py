"""What is said of pip's failures."""

from __future__ import annotations

import pytest

from hvd_pods.shared.pip_output import explain

CONFLICT = """\
ERROR: Cannot install requests==2.0 and other because these package versions conflict.

The conflict is caused by:
    The user requested requests==2.0
    {other}

To fix this you could try to:
"""


@pytest.mark.parametrize(
    ("other", "is_of_image"),
    [
        ("other 1.0 depends on requests>=2.31", False),
        ("The user requested (constraint) requests==2.31", True),
    ],
)
def test_the_image_is_named_where_it_is_part_of_a_conflict(
    other: str, *, is_of_image: bool
) -> None:
    said = str(explain(CONFLICT.format(other=other)))
    assert other in said
    assert ("what the image has" in said) == is_of_image
