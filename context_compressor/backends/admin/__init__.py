"""Sessions and texts seen from outside: opened, moved, deleted for good, and what nothing names removed."""

from context_compressor.backends.admin.archive import ArchiveError as ArchiveError
from context_compressor.backends.admin.archive import export_session as export_session
from context_compressor.backends.admin.archive import import_session as import_session
from context_compressor.backends.admin.archive import read_archive as read_archive
from context_compressor.backends.admin.collection import collect_texts as collect_texts
from context_compressor.backends.admin.deletion import delete_messages as delete_messages
from context_compressor.backends.admin.deletion import delete_session as delete_session
from context_compressor.backends.admin.opening import open_sessions as open_sessions
from context_compressor.backends.admin.opening import open_store as open_store
from context_compressor.backends.admin.sessions import SessionDirectory as SessionDirectory
