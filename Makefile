# What there is to do here. Each target's own script says what it does; `make help` lists them.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# sudo keeps neither the user's PATH nor, mostly, its rustup.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-guests test-fleet mutants audit fuzz bench cost install install-lib uninstall check fmt docs clean root packages

help: ## list the targets
	@echo "Ringside: make TARGET, as root where it says so"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install missing packages (root), fetch the kernels and captures that tests need
	@scripts/setup

packages:
	@scripts/setup --packages

build: packages ## build the library, the tool and the gateway, optimised
	$(CARGO) build --release
	@scripts/split-symbols $(TARGET)/release/ringside $(TARGET)/release/ringside-gateway

demo: root ## compare UDP, AF_PACKET and AF_XDP on a test bed of its own (root)
	@scripts/setup --build
	$(CARGO) build --locked --profile demo -p ringside --no-default-features
	@mkdir -p out
	$(TARGET)/demo/ringside compare --lab veth --slot-ms 100 --rounds 6 --json-file out/demo.json
	@$(TARGET)/demo/ringside report out/demo.json -o out/demo.html >/dev/null
	@echo "Report with all figures and curves: out/demo.html"

test: setup ## run every check and test; without root those on the real kernel are left out
	@scripts/test

test-guests: root ## run what takes long in guests: other NICs, all of the conformance list with zero-copy (root)
	@scripts/setup --guests
	@scripts/test-guests

test-fleet: root packages ## run what takes long with gateways: 50 kills under load; on etcd dead, paused, cut off, slow members; a line for each (root)
	@scripts/test-fleet

mutants: setup ## test the tests: change the code in small ways, and see a test fail for each; can be resumed
	@scripts/audit --tools
	@scripts/mutants

audit: packages ## run checks whose tools are compiled from source; SINCE=COMMIT: mutants in what changed since
	@scripts/audit $(SINCE)

fuzz: packages ## fuzz the library and the gateway's decisions under AddressSanitizer, for FUZZ_SECONDS (60)
	@scripts/fuzz

cost: packages ## instructions and nanoseconds of user code per packet, without a kernel
	@scripts/cost

bench: root packages ## compare with other AF_XDP programs and crates, side by side, and measure the gateway (root)
	@scripts/bench

install: packages ## install the tool with its man pages, the gateway, and libringside for C: PREFIX (/usr/local), DESTDIR, …
	@scripts/install

install-lib: ## install libringside for C alone: headers, libraries, pkg-config file; PREFIX, DESTDIR, … as above
	@scripts/setup --build
	@scripts/install --lib

uninstall: ## remove what install put there, with the same variables
	@scripts/install --uninstall

check: packages ## check format, lints, the rules between crates, and run the unit tests; without root
	$(CARGO) fmt --all --check
	@scripts/check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --workspace --lib --bins

fmt: ## format the code
	$(CARGO) fmt --all

docs: packages ## build the API documentation into target/doc
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps

clean: ## remove everything that was built
	$(CARGO) clean

root:
	@if [ "$$(id -u)" != 0 ]; then \
	  echo "make $(MAKECMDGOALS) has to be run as root: it makes network namespaces and loads BPF programs." >&2; \
	  echo "Try: sudo make $(MAKECMDGOALS)" >&2; \
	  exit 1; \
	fi
