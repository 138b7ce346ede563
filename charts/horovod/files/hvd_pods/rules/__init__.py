"""The rules of a run's life: events in, effects out. The rules themselves have no side effects."""
