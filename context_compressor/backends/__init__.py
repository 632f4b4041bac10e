"""Memories whose history lasts by itself, in a database or in Redis. Their drivers are imported when used."""
