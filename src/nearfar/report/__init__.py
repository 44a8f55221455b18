"""The same results, for people: one page with tables and pictures, and tables for papers. No torch."""

from nearfar.report.page import render_page
from nearfar.report.sources import Source, read_source
from nearfar.report.tables import FORMATS, render

__all__ = ["FORMATS", "Source", "read_source", "render", "render_page"]
