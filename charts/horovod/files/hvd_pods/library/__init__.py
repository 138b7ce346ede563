"""Modules for the scripts of ranks, which find them behind all that they could import before."""
