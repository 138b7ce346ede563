"""`python -m hvdchart`."""

from hvdchart.cli.app import main

main()
