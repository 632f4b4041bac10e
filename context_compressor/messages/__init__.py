"""What a message is: `Msg` and its blocks; chat dicts to and from it; exchanges of calls and results."""
