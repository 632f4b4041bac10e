"""Who writes summaries: models of providers, or rules; prompts, splitting, checks of what comes."""
