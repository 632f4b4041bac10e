"""States that were saved once, with the views that they give: see `make.py`."""
