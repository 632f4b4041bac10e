"""Media that other formats keep as base64, as content parts."""

from __future__ import annotations

from context_compressor.readers.transcript import Part, image_part

_AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}


def data_part(media_type: str, data: str, kind: str, name: str) -> Part:
    """Return base64 data as a part; `kind` (image, audio, video, file) counts if there is no type."""
    family, _, subtype = media_type.partition("/")
    family = family or kind
    if family == "image":
        return image_part(f"data:{media_type or 'image/png'};base64,{data}")
    if family == "audio":
        return {
            "type": "input_audio",
            "input_audio": {"data": data, "format": _AUDIO.get(subtype, subtype or "wav")},
        }
    url = f"data:{media_type};base64,{data}"
    if family == "video":
        return {"type": "video_url", "video_url": {"url": url}}
    return {"type": "file", "file": {**({"filename": name} if name else {}), "file_data": url}}
