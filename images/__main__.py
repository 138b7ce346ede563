from images.builder.cli import main

main()
