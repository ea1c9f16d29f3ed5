"""One business task, done four ways: what a context's compaction costs, and what it loses."""
