"""The laws of a good compactor, checked for any function from messages to messages, over random histories.

from context_compressor.laws import check

report = check(my_function, form="chat", budget=4_000)
assert not report.broken
"""

from context_compressor.laws.counterexample import Counterexample
from context_compressor.laws.subject import LAWS, Subject
from context_compressor.laws.suite import Report, check

__all__ = ["LAWS", "Counterexample", "Report", "Subject", "check"]
