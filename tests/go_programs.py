"""Programs in Go, such as Helm and kubectl, which the tests start thousands of times."""

from __future__ import annotations

# Garbage collection is a third of the time of a program that ends at once. The limit is for a chart
# of many groups.
NO_GARBAGE_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}
