"""Write the sample sessions.

    python -m benchmarks.sessions [FOLDER]

A file for each kind, a line for each session: `{"id": ..., "kind": ..., "messages": [OpenAI chat dicts],
"probes": [...]}`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from context_compressor import TiktokenCounter, from_openai

from .catalogue import SAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/sessions"))
    folder = parser.parse_args().folder
    counter = TiktokenCounter()
    lines: dict[str, list[str]] = {}
    print(f"{'session':12} {'kind':8} {'messages':>8} {'tokens':>8} {'probes':>6}")
    for sample in SAMPLES:
        messages, probes = sample.record()
        data = {"id": sample.id, "kind": sample.kind, "messages": messages, "probes": probes}
        lines.setdefault(sample.kind, []).append(json.dumps(data, ensure_ascii=False) + "\n")
        tokens = counter.count_messages(from_openai(messages))
        print(f"{sample.id:12} {sample.kind:8} {len(messages):8,} {tokens:8,} {len(probes):6}")
    folder.mkdir(parents=True, exist_ok=True)
    for kind, texts in lines.items():
        (folder / f"{kind}.jsonl").write_text("".join(texts), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
