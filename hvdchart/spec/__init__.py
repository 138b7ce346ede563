"""Reads, checks and models a cluster spec."""
