"""Short-term memory middleware for LLM agents."""
