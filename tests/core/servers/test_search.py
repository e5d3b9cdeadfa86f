"""Finding tools: the best first, by words or by a glob."""

import pytest

from pml.core.servers.search import find_tools

TOOLS = [
    ("github:create_issue", "Opens a new issue in a repository."),
    ("github:search_issues", "Finds issues and pull requests."),
    ("fs:readFile", "Reads a file from disk."),
    ("fs:write_file", "Writes text to disk."),
    ("notes:größe", "Misst die Länge einer Notiz."),
]


def find(query: str) -> list[str]:
    return find_tools(query, [(name, text, name) for name, text in TOOLS])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [name for name, _ in sorted(TOOLS)]),
        ("  ", [name for name, _ in sorted(TOOLS)]),
        ("create issue", ["github:create_issue", "github:search_issues"]),
        ("issues", ["github:create_issue", "github:search_issues"]),
        ("search issues", ["github:search_issues", "github:create_issue"]),
        ("read file", ["fs:readFile", "fs:write_file"]),
        ("READ", ["fs:readFile"]),
        ("pull requests", ["github:search_issues"]),
        ("repo", ["github:create_issue"]),
        ("fs", ["fs:readFile", "fs:write_file"]),
        ("größe", ["notes:größe"]),
        ("länge", ["notes:größe"]),
        ("volcano", []),
        ("*_issue*", ["github:create_issue", "github:search_issues"]),
        ("fs:*", ["fs:readFile", "fs:write_file"]),
        ("write_fil?", ["fs:write_file"]),
        ("github:write*", []),
    ],
)
def test_a_query_finds_what_fits_best_first(query: str, found: list[str]) -> None:
    assert find(query) == found


def test_the_exact_name_leads_whatever_else_has_its_words() -> None:
    tools = ["a:create_issue_list", "b:create_issue", "c:issue_create"]

    assert find_tools("create_issue", [(name, "", name) for name in tools])[0] == "b:create_issue"


def test_a_name_counts_more_than_a_description() -> None:
    tools = [("a:one", "It can search."), ("b:search", "")]

    assert find_tools("search", [(name, text, name) for name, text in tools]) == ["b:search", "a:one"]


def test_the_fullest_match_leads() -> None:
    tools = [("a:search", ""), ("b:search_issues", ""), ("c:issues", "")]

    assert find_tools("search issues", [(name, text, name) for name, text in tools])[0] == "b:search_issues"
