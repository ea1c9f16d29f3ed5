"""foldlog: the conversation log for LLM agents."""
