"""What builds and checks this repository. It is not part of the hvdchart package."""
