"""Making a small OpenDocument spreadsheet: one sheet of texts and whole numbers.

Format: OASIS OpenDocument 1.2, parts 1 and 3; the least that LibreOffice opens without asking.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

MIME = "application/vnd.oasis.opendocument.spreadsheet"
_URN = "urn:oasis:names:tc:opendocument:xmlns"
_DATE = (2024, 3, 1, 9, 0, 0)


def make_ods(name: str, rows: Sequence[Sequence[str | int]]) -> bytes:
    """A sheet called ``name``; the same bytes for the same cells."""
    lines = "".join(f"<t:table-row>{''.join(map(_cell, row))}</t:table-row>" for row in rows)
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<o:document-content xmlns:o="{_URN}:office:1.0" xmlns:t="{_URN}:table:1.0" '
        f'xmlns:x="{_URN}:text:1.0" o:version="1.2"><o:body><o:spreadsheet>'
        f"<t:table t:name={quoteattr(name)}>{lines}</t:table>"
        f"</o:spreadsheet></o:body></o:document-content>"
    )
    manifest = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<m:manifest xmlns:m="{_URN}:manifest:1.0" m:version="1.2">'
        f'<m:file-entry m:full-path="/" m:media-type="{MIME}"/>'
        f'<m:file-entry m:full-path="content.xml" m:media-type="text/xml"/></m:manifest>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        parts = (("mimetype", MIME), ("content.xml", content), ("META-INF/manifest.xml", manifest))
        for part, text in parts:
            archive.writestr(zipfile.ZipInfo(part, _DATE), text)
    return out.getvalue()


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        kind, text = f'"float" o:value="{value}"', str(value)
    else:
        kind, text = '"string"', escape(value)
    return f"<t:table-cell o:value-type={kind}><x:p>{text}</x:p></t:table-cell>"
