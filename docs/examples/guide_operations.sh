#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/guide/operations.md, beside the programs of docs/guide/names.md.
# DOCUMENTED is the folder of the compiled examples; `tenon` is in PATH.
set -eu
"$DOCUMENTED/documented_guide_names" serve &
server=$!
n=0
until tenon stat shop >/dev/null 2>&1; do
    n=$((n + 1))
    test $n -lt 200
    sleep 0.05
done

# show: night
for name in $(tenon ls --json | python3 -c '
import json, sys
for domain in json.load(sys.stdin):
    print(domain["name"] or domain["id"])'); do
    echo "domain $name"
    tenon stat "$name" || continue  # how much memory, how many messages wait, who is a member
    tenon blocks "$name" || true    # each block, and who holds it
    tenon tickets "$name" || true   # handles that nobody imported
done
# end

# show: doctor
tenon gc        # reclaims dead processes, and removes files that no process needs
tenon doctor    # recounts everything; its exit status is 1 if something is wrong
# end

"$DOCUMENTED/documented_guide_names"
wait $server
