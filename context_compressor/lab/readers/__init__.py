"""Sessions of other programs, read as OpenAI chat dicts."""

from context_compressor.lab.readers.detection import detect_format as detect_format
from context_compressor.lab.readers.reading import MAX_UNPACKED as MAX_UNPACKED
from context_compressor.lab.readers.reading import Reading as Reading
from context_compressor.lab.readers.reading import read_all as read_all
from context_compressor.lab.readers.reading import read_path as read_path
from context_compressor.lab.readers.reading import read_stream as read_stream
from context_compressor.lab.readers.session import Form as Form
from context_compressor.lab.readers.session import Format as Format
from context_compressor.lab.readers.session import Problem as Problem
from context_compressor.lab.readers.session import Session as Session
from context_compressor.lab.readers.session import UnreadableError as UnreadableError
from context_compressor.lab.readers.session import grouped as grouped
from context_compressor.lab.readers.session import grouped_texts as grouped_texts
from context_compressor.lab.readers.session import summed as summed
