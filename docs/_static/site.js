// SPDX-License-Identifier: Apache-2.0
// On a phone each row of a wide table is a block of its own: its cells say which column they are of.
document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table.docutils")) {
        const titles = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
        if (titles.length < 3) continue;
        table.classList.add("wide");
        for (const row of table.querySelectorAll("tbody tr"))
            [...row.children].forEach((cell, i) => cell.setAttribute("data-title", titles[i] || ""));
    }
});
