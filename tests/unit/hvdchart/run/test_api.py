"""What is said when the API server does not answer."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.api import _wrap_errors


def test_an_error_without_a_reason_of_its_own_is_the_reason() -> None:
    with (
        pytest.raises(ClusterError, match=r"^cannot list pods: .* does not answer: broken pipe$"),
        _wrap_errors("list pods"),
    ):
        raise OSError("broken pipe")
