"""Shared by the developer tools: cache, locks, commands, apt, messages and errors."""
