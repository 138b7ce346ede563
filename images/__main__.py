from devtools.images.cli import main

main()
