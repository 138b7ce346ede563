"""Plans ranks, slots, threads, bindings and resources from a spec."""
