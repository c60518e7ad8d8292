"""The page of a folder that `ablate split` wrote."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.split.folder import Folder

PAGE_NAME = "split.html"


def write_page_of(folder: "Folder") -> None:
    """Write split.html anew."""
    from harness.split.folder import place
    from harness.split.shown import shown
    from reports.page.parts import parts_page

    place(folder.path, PAGE_NAME, parts_page(shown(folder)).encode())
