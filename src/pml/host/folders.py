"""Folders as permissions and search paths name them. Whether they exist, or for whom, is not known here."""

import os

from pml.core.errors import Invalid
from pml.core.text import quote


def expand_folder(text: str, *, home: str) -> str:
    """Return the normal path of the folder `text`; `~/notes` lies in `home`, the user's.

    Raises: Invalid for what is relative: it would be another folder wherever PML is started.
    """
    path = os.path.normpath(home + text[1:] if text.startswith("~/") else text)
    if not os.path.isabs(path):
        raise Invalid(f"{quote(text)} is not a folder that a server may be given: it is relative")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def absolute_only(path: str) -> str:
    """Return the search path without relative entries: those would find programs in the workspace."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))
