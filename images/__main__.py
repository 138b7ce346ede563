"""Builds the images of this repository; an image of a user's own is built by `hvdchart build`."""

import sys

try:
    from images.builder.cli import main
except ModuleNotFoundError as error:
    # A user has installed hvdchart alone.
    sys.exit(
        f"python -m images: there is no module {error.name}: run `make venv` in the checkout, and "
        "use .venv/bin/python. An image of your own needs none of this: `hvdchart build FOLDER "
        "--image NAME`, and `hvdchart run SCRIPT` uses public images"
    )

main()
