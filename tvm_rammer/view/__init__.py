"""Show when each rTask runs: as text, as an HTML page, as an SVG image, as a Perfetto trace."""

from tvm_rammer.schedule.critical_path import critical_path
from tvm_rammer.view.families import FAMILIES, Family, family_of
from tvm_rammer.view.html import timeline_html
from tvm_rammer.view.svg import timeline_svg
from tvm_rammer.view.text import timeline_text
from tvm_rammer.view.trace import chrome_trace

__all__ = [
    "FAMILIES",
    "Family",
    "chrome_trace",
    "critical_path",
    "family_of",
    "timeline_html",
    "timeline_svg",
    "timeline_text",
]
