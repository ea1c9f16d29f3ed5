"""The vocabulary of foldlog: entries, messages, their bytes and their subjects."""
