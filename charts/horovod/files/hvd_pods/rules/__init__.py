"""The rules of a run's life: events in, effects out. Nothing here does anything itself."""
