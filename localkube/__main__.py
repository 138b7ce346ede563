"""`python -m localkube`"""

from localkube.cli import main

main()
