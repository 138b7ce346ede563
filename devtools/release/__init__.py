"""Make the files of a release: the packaged chart, the wheel, their checksums and the notes."""
