# SPDX-License-Identifier: Apache-2.0
"""What a domain holds, and which process holds it, as the command `tenon blocks` shows it."""

import html
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import _core, _domain

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def amount(size_bytes: int) -> str:
    size = float(size_bytes)
    unit = 0
    while size >= 1024 and unit + 1 < len(_UNITS):
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def _age(age_ns: int) -> str:
    seconds = age_ns / 1e9
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def _holders(block: Dict[str, Any]) -> str:
    names = [f"{h['command'] or '?'}[{h['pid']}]" for h in block["holders"]]
    messages = block["in_messages"]
    if block["key"] is not None:
        names.insert(0, f"store {block['store'] or '?'}: {block['key']}")
        messages -= 1  # the one that the store has
    if block["channel"] is not None:
        names.insert(0, f"channel {block['channel'] or '?'}")
        messages -= 1  # the one that the channel has
    for word, count in (("message", messages), ("ticket", block["in_tickets"])):
        if count > 0:
            names.append(f"{count} {word}{'s' if count > 1 else ''}")
    return ", ".join(names) or (f"its {block['kind']}" if block["kind"] in ("queue", "store", "channel") else "nobody")


class Report:
    """The state of a domain at one moment.

    Attributes
    ----------
    stat : dict of figures
    seats, blocks, objects, tickets, schedulers : list of dict
        The keys are the names of include/tenon/inspect.h. Sizes are in bytes, ages in nanoseconds.
    """

    _COLUMNS = ("block", "size", "what", "strategy", "age", "held by")

    def __init__(self, name: str) -> None:
        found = _core.inspect_domain(name)
        blocks = sorted(found["blocks"], key=lambda block: -block["bytes"])
        self.stat: Dict[str, Any] = found["stat"]
        self.seats: List[Dict[str, Any]] = found["seats"]
        self.blocks: List[Dict[str, Any]] = blocks
        self.objects: List[Dict[str, Any]] = found["objects"]
        self.tickets: List[Dict[str, Any]] = found["tickets"]
        self.schedulers: List[Dict[str, Any]] = found["schedulers"]

    @property
    def name(self) -> str:
        domain: Dict[str, str] = self.stat["domain"]
        return domain["name"] or domain["id"]

    @property
    def live_bytes(self) -> int:
        return int(self.stat["live_bytes"])

    def _rows(self) -> Iterator[Tuple[str, ...]]:
        for block in self.blocks:
            what = block["kind"]
            if block["dtype"]:
                what = f"{block['dtype']} {tuple(block['shape'])}"
            yield (
                f"{block['block']:08x}",  # as `tenon blocks` has it
                amount(block["bytes"]),
                what,
                block["strategy"],
                _age(block["age_ns"]),
                _holders(block),
            )

    def _headline(self) -> str:
        members = ", ".join(f"{s['command'] or '?'}[{s['pid']}]" for s in self.seats if not s["is_manager"])
        return (
            f"domain {self.name}: {len(self.blocks)} block{'' if len(self.blocks) == 1 else 's'}, {amount(self.live_bytes)} in use, "
            f"{amount(self.stat['free_bytes'])} kept warm; members: {members or 'none'}"
        )

    def __repr__(self) -> str:
        most = 20
        rows = [self._COLUMNS, *self._rows()]
        left = len(rows) - 1 - most
        rows = rows[: most + 1]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        if left > 0:
            lines.append(f"... and {left} more")
        return "\n".join([self._headline(), *(lines if len(rows) > 1 else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{column}</th>" for column in self._COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        return f"<p>{html.escape(self._headline())}</p><table><tr>{head}</tr>{body}</table>"


def inspect(name: Optional[str] = None) -> Report:
    """Report what a domain holds, and which process holds it.

    It takes no seat in the domain and writes nothing.

    Parameters
    ----------
    name : str, the name or id of a domain; None for this process's domain

    Returns
    -------
    Report

    Raises
    ------
    FileNotFoundError
        There is no such domain.
    """
    return Report(_domain.default().name if name is None else name)
