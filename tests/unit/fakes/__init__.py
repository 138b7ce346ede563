"""Stand-ins that unit tests alone use; those of other tests as well are in tests/support/fakes."""
