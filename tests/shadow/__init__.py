"""The memory as it was, beside the one that is built anew: what one shows, the other has to show."""
