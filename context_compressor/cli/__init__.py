"""The command line: a module for what each command does, and what they share."""
