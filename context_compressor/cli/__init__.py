"""The command line: `context-compressor compress | replay | read | grep | demo`."""
