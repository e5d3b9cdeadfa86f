"""The terminal inbox: the same cards as on the page, drawn by Textual. Knows no HTTP."""
