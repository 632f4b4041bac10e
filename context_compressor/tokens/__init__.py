"""How long a message is: counters and vocabularies, images and other media, a provider's counts."""
