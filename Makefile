# SPDX-License-Identifier: Apache-2.0
# The front door. Each command builds under build/; all but install and check-gpu first install what they lack
# (dev/setup), and say so.

help:
	@echo 'make demo         train on handwritten digits in four processes, kill two of them'
	@echo 'make demo-python  the same from Python, with PyTorch and its DataLoader'
	@echo 'make demo-hybrid  schedule a pipeline over processors and an OpenCL device, beside Dask'
	@echo 'make test         build and run every test: what CI runs'
	@echo 'make test-fast    the tests for after each change: abi, unit, and some of each other kind'
	@echo 'make bench        measure the figures of docs/figures.md'
	@echo 'make bench-peers  the Python package beside PyTorch and the standard library'
	@echo 'make bench-compare  the table of README.md: beside PyTorch, the standard library, Ray, iceoryx2'
	@echo 'make test-gpu     the tests of GPU memory alone, with a fake driver'
	@echo 'make check-gpu    on a machine with a GPU: tests, facts and figures, into docs/gpu-report.md'
	@echo 'make check        before a release: format, layers, symbols, headers, tidy, sanitizers, tests'
	@echo 'make docs         build the site of the documentation: build/docs/html/index.html'
	@echo 'make prove        the whole proof of docs/crash.md, each test at full size: hours'
	@echo 'make soak         kill processes at random for MINUTES=30, and account for everything'
	@echo 'make install      install to PREFIX (/usr/local); DESTDIR and LIBDIR (lib) are honoured'
	@echo 'make uninstall    remove all that was installed to PREFIX'
	@echo 'make format       format the sources in place'
	@echo 'make clean        remove build/'

demo:
	@dev/setup demo
	@dev/build release
	@dev/demo

demo-hybrid:
	@dev/setup demo-hybrid
	@dev/demo-hybrid

demo-python:
	@dev/setup demo-python
	@dev/demo-python

test:
	@dev/setup test
	@dev/build debug
	@dev/run-tests build/debug

# The tests of GPU memory alone, with the fake driver in each of its worlds.
test-gpu:
	@dev/setup test
	@dev/build debug
	@dev/run-tests build/debug --suite gpu --suite device

# On a machine with a GPU; QUICK=1 asks with fewer samples and smaller sizes. It installs nothing.
check-gpu:
	@dev/check-gpu $(if $(QUICK),--quick)

test-fast:
	@dev/setup test
	@dev/test-fast

bench:
	@dev/setup bench
	@dev/build release
	@dev/bench

bench-peers:
	@dev/setup bench-peers
	@dev/build python
	@dev/bench --peers

bench-compare:
	@dev/setup bench-peers
	@dev/build python
	@dev/bench-compare

check:
	@dev/setup check
	@dev/check

prove:
	@dev/setup prove
	@dev/prove

MINUTES = 30
soak:
	@dev/setup test
	@dev/soak $(MINUTES)

docs:
	@dev/docs

install:
	@dev/setup build
	@dev/build install
	@dev/install build/install

uninstall:
	@dev/install --remove

format:
	@dev/setup check
	@dev/format

clean:
	rm -rf build

.PHONY: help demo demo-hybrid demo-python test test-gpu check-gpu test-fast bench bench-peers bench-compare check prove soak docs install uninstall format clean
