"""The commands of the lab: compress, replay, examine and demo."""
