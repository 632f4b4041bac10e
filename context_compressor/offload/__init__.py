"""Where full texts go and how they come back: stores, stubs with previews, pages."""

from context_compressor.moved import names_of

__getattr__ = names_of(
    __name__,
    "store",
    "guide",
    "pages",
    "stubs",
    "previews.making",
    "previews.text",
    "folders",
    "locks",
    "files",
    "directory",
)
