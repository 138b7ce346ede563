"""Tools that build and check this repository. They are not part of the hvdchart package."""
