from images.cli import main

main()
