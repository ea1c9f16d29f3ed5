"""Faults that really happen to real processes, and a check of what the log promises after each.

`python -m tests.faults --seed 7 --nodes 3` runs one schedule of faults and says what it found.
"""
