"""Works out ranks, slots, threads, bindings and resources from a spec."""
