#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/guide/python-unmodified.md: tests/python/test_unmodified.py runs them.
set -e
# show: commands
python -m tenon --report frames.py              # in place of: python frames.py
python -m tenon -m package.frames --epochs 3    # in place of: python -m package.frames --epochs 3
# end
# show: options
python -m tenon --strategy file_descriptor frames.py
python -m tenon --keep joblib --keep package.workers frames.py
# end
