"""This machine and its operating system: hardware, usage, files, logs, priorities."""
