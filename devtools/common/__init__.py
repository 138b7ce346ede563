"""Shared by the developer tools: cache, locks, commands, apt, files, messages and errors."""
