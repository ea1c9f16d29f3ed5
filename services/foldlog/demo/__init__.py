"""`foldlog demo`: one conversation from question to report, told while it happens.

The agents, the projector and the compactor are processes of their own, and one is killed on the
way. What the demo shows is read back from the log, never remembered from telling it.
"""
