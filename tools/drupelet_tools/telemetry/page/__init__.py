"""The report as pages of HTML: sections, tables, charts and maps."""
