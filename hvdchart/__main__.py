"""`python -m hvdchart`."""

from hvdchart.cli import main

main()
