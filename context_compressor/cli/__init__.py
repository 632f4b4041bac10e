"""The command line: `context-compressor compress | read | grep | demo`."""
