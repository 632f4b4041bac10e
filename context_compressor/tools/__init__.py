"""The tools by which an agent finds and reads back what left its view, and the pages they answer with."""
