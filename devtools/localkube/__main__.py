"""`python -m devtools.localkube`"""

from devtools.localkube.cli import main

main()
