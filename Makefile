# Every target works on all modules of the workspace (go.work) at once: the
# package pattern "work" names their packages. `make` alone prints the targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

COUNT    ?= 5
FUZZTIME ?= 20s
ARGS     ?=

# Without a redis-server the tests that need one skip themselves; with one, a
# test that skips all the same is a failure. One package at a time: many measure time.
redis := if scripts/install-redis; then export DIBS_REQUIRE_REDIS=1; fi

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## run all tests with the race detector (installs redis-server if it can)
	@# Compiled on all cores: with -p 1 go test would use one for that, too.
	@$(redis); go list -race -test -deps -export work >/dev/null; go test -race -p 1 -parallel 8 -timeout=15m work

.PHONY: test-long
test-long: ## the same at length: DIBS_LONG=1, COUNT=5 times
	@$(redis); DIBS_LONG=1 go test -race -p 1 -parallel 8 -count=$(COUNT) -timeout=80m work
	@# The race detector has seen 400 of these worlds by then, and would take hours for all.
	@GOGC=400 go test -run='^TestSimulation$$' -timeout=80m ./quorum -seeds=1-100000

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME=20s
	@go test -list '^Fuzz' work \
	| awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' \
	| while read -r package name; do \
		echo "== $$name in $$package"; \
		go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=100x "$$package" </dev/null || exit 1; \
	done

.PHONY: bench
bench: ## measure dibs beside its peers: make bench ARGS="..."
	@go run ./bench $(ARGS)

.PHONY: demo
demo: ## run the demonstration program: make demo ARGS="..."
	@go run ./examples/demo $(ARGS)

.PHONY: lint
lint: ## gofmt, go mod tidy, go vet, golangci-lint; changes nothing
	@unformatted=$$(gofmt -s -l .); [ -z "$$unformatted" ] || { echo "run gofmt -s -w on: $$unformatted"; exit 1; }
	@# Only the root: the other modules require versions of it that are not published yet.
	@GOWORK=off go mod tidy -diff
	@go vet work
	@$(GOLANGCI) run $$(go list -m -f '{{.Dir}}/...')

.PHONY: tools
tools: ## fetch what the other targets need: redis-server and the linter
	@scripts/install-redis
	@$(GOLANGCI) version
