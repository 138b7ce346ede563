"""What the tests of the pods' programs share."""

from tests.unit.podfiles.conftest import *  # noqa: F403
