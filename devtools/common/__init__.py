"""Code that the developer tools share: cache, locks, commands, apt, messages and errors."""
