"""Previews: what stands in the view for a text that left it. One small recogniser per kind of text."""
