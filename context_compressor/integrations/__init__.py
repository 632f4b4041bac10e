"""Other frameworks, a module for each, which is imported only where that framework is used."""
