"""Backup: conversations as JSON lines in a folder, and back into a log."""
