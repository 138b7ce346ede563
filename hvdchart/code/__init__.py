"""The user's own training code: from a folder to the values."""

# The bytes of all files, unpacked. The chart takes about a megabyte of them, compressed.
MOST_BYTES = 256 << 20
