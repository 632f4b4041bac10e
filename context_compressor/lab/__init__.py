"""What is built with the library: readers of transcripts, measurements, and the commands for both."""
