"""Benchmarks: each number beside what a user would take instead, in the same run."""
