# Every target covers all modules of the workspace (go.work): the package pattern "work"
# matches their packages. `make` alone prints the targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

COUNT    ?= 5
FUZZTIME ?= 20s
ARGS     ?=

# Without a server, tests that need it are skipped. With one, DIBS_REQUIRE_REDIS=1 makes such a
# skip a failure.
servers := if scripts/install-server redis; then export DIBS_REQUIRE_REDIS=1; fi; \
	if scripts/install-server postgres && scripts/install-server pgbouncer; then export DIBS_REQUIRE_POSTGRES=1; fi; \
	if scripts/install-server mariadb; then export DIBS_REQUIRE_MARIADB=1; fi; \
	if scripts/install-server prometheus; then export DIBS_REQUIRE_PROMETHEUS=1; fi; \
	if scripts/install-server etcd; then export DIBS_REQUIRE_ETCD=1; fi; \
	if scripts/install-server zookeeper; then export DIBS_REQUIRE_ZOOKEEPER=1; fi; \
	if scripts/install-server chromium; then export DIBS_REQUIRE_CHROMIUM=1; fi; \
	if scripts/install-server twemproxy; then export DIBS_REQUIRE_TWEMPROXY=1; fi

.PHONY: help
help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# PACKAGES run at the same time. On two processors two of them take as long as one after the other,
# and starve each other. A test that measures time compares it with what the machine takes for a
# simple request meanwhile.
PACKAGES ?= 1

.PHONY: test
test: ## run all tests with the race detector (installs redis-server, PostgreSQL, PgBouncer, MariaDB, Prometheus, etcd, ZooKeeper, Chromium and twemproxy if possible)
	@# Compiling would take the CPU from the first tests.
	@$(servers); go list -race -test -deps -export work >/dev/null; go test -race -p $(PACKAGES) -parallel 8 -timeout=30m work

.PHONY: test-long
test-long: ## run the long tests (DIBS_LONG=1) COUNT=5 times, the tests of servers and of adapters with other versions, and 110,000 simulated runs
	@$(servers); DIBS_LONG=1 go test -race -p 1 -parallel 8 -count=$(COUNT) -timeout=80m work
	@$(MAKE) test-redis test-sql test-adapters
	@# Without the race detector, which would take hours. It has run some of these seeds above.
	@GOGC=400 go test -run='^TestSimulation(Repeats)?$$' -timeout=80m ./quorum/internal/core -seeds=1-100000
	@GOGC=400 go test -run='^TestSimulation(Repeats)?$$' -timeout=80m ./quorum -seeds=1-10000 -twice=200

# The packages that use Redis, and the versions of it beside the installed one.
REDIS_PACKAGES := ./internal/test/redistest ./redisstore/... ./goredisstore/... ./rueidisstore/... ./redigostore/...
REDIS_VERSIONS ?= redis-6.2 redis-8 valkey

.PHONY: test-redis
test-redis: ## run the tests of Redis on Redis 6.2 and 8, and on Valkey (needs python3 with pip)
	@for version in $(REDIS_VERSIONS); do \
		server=$$(scripts/install-server $$version) || continue; \
		echo "== $$version"; \
		DIBS_REQUIRE_REDIS=1 DIBS_REDIS_SERVER="$$server" go test -race -p $(PACKAGES) -parallel 8 -timeout=30m $(REDIS_PACKAGES); \
	done

# The versions of databases beside the installed ones.
SQL_VERSIONS ?= postgres-12 postgres-17 postgres-18 mariadb-11

.PHONY: test-sql
test-sql: ## run the tests of PostgreSQL on 12, 17 and 18, and those of MariaDB on 11 (needs python3 and mvn)
	@for version in $(SQL_VERSIONS); do \
		server=$$(scripts/install-server $$version) || { echo "== $$version is absent"; continue; }; \
		echo "== $$version"; \
		case $$version in \
		postgres-*) DIBS_REQUIRE_POSTGRES=1 DIBS_POSTGRES="$$server" go test -race -p $(PACKAGES) -timeout=30m ./internal/test/pgtest ./pgstore/...;; \
		mariadb-*) DIBS_REQUIRE_MARIADB=1 DIBS_MARIADB="$$server" go test -race -p $(PACKAGES) -timeout=30m ./internal/test/mysqltest ./mysqlstore/...;; \
		esac; \
	done

.PHONY: test-adapters
test-adapters: ## run the tests of contrib with the oldest and the newest version of each library
	@$(servers); go run ./scripts/adapters

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME=20s
	@go test -list '^Fuzz' work \
	| awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' \
	| while read -r package name; do \
		echo "== $$name in $$package"; \
		go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=100x "$$package" </dev/null || exit 1; \
	done

# LANGUAGES is available (those whose tools are installed and whose libraries can be downloaded),
# all, or a list such as python,node.
LANGUAGES ?= available
OUT       ?=

.PHONY: interop
interop: ## test dibs beside libraries of other languages on one key (LANGUAGES=all; OUT=FILE for the results as CSV)
	@scripts/install-server redis; \
		if scripts/install-server etcd; then export DIBS_REQUIRE_ETCD=1; fi; \
		if scripts/install-server zookeeper; then export DIBS_REQUIRE_ZOOKEEPER=1; fi; \
		DIBS_REQUIRE_REDIS=1 DIBS_INTEROP='$(LANGUAGES)' DIBS_INTEROP_OUT='$(abspath $(OUT))' \
		go test -race -count=1 -timeout=20m -v -run='^(TestMatrix|TestRedisson.*|TestEtcd|TestZooKeeper.*)$$' ./interop | scripts/failures

.PHONY: bench
bench: ## compare dibs with other lock libraries: make bench ARGS="..."
	@go run ./bench $(ARGS)

.PHONY: demo
demo: ## run the demonstration program: make demo ARGS="..."
	@go run ./examples/demo $(ARGS)

.PHONY: lint
lint: prose ## check with gofmt, go mod tidy, go vet, dibsvet, apidiff, golangci-lint, and the prose; changes nothing
	@unformatted=$$(gofmt -s -l .); [ -z "$$unformatted" ] || { echo "run gofmt -s -w on: $$unformatted"; exit 1; }
	@# Only the root module: the others require versions of it that are not published yet.
	@GOWORK=off go mod tidy -diff
	@go vet work
	@scripts/api
	@tool=$$(mktemp -d); trap 'rm -rf "$$tool"' EXIT; \
		go build -o "$$tool/dibsvet" ./cmd/dibsvet; go vet -vettool="$$tool/dibsvet" work
	@$(GOLANGCI) run $$(go list -m -f '{{.Dir}}/...')

.PHONY: prose
prose: ## check the language of documents, comments, messages and help texts
	@scripts/prose

.PHONY: tools
tools: ## install redis-server and the linter, which other targets need
	@scripts/install-server redis
	@$(GOLANGCI) version
