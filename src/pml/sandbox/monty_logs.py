"""What Python code prints, in lines, up to a limit for the whole run."""

import msgspec


class MontyLogs(msgspec.Struct, kw_only=True):
    """`lines` are all so far, `told` of them already in a turn; `rest` is a line that has no end yet."""

    most_bytes: int
    lines: list[str] = []
    told: int = 0
    rest: list[str] = []
    size: int = 0
    is_cut: bool = False

    def printed(self, text: str) -> None:
        if self.is_cut:
            return
        self.size += len(text.encode())
        if self.size > self.most_bytes:
            self.is_cut = True
            self._end_line()
            self.lines.append(f"… output is cut: more than {self.most_bytes:,} bytes were printed")
            return
        *ended, rest = text.split("\n")
        for line in ended:
            self.rest.append(line)
            self._end_line(even_empty=True)
        if rest:
            self.rest.append(rest)

    def new(self, *, is_end: bool) -> list[str]:
        """Return the lines that no turn has told, at the end also one that has no end."""
        if is_end:
            self._end_line()
        new = self.lines[self.told :]
        self.told = len(self.lines)
        return new

    def _end_line(self, *, even_empty: bool = False) -> None:
        if self.rest or even_empty:
            self.lines.append("".join(self.rest))
            self.rest = []
