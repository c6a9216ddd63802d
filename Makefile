# noused. `make` lists the targets.

SHELL    := bash
.SHELLFLAGS := -o pipefail -c
PREFIX   ?= $(HOME)/.local
UNITDIR  ?= $(or $(XDG_CONFIG_HOME),$(HOME)/.config)/systemd/user
DESTDIR  ?=
FUZZTIME ?= 30s
CRASHTIME ?= 2m
TURNS    ?= 2000
PROMPTS  ?= 10000
BENCH    ?= .
# What is built for users, for tests and by tests is built alike, and so once; the race
# detector alone needs cgo.
export GOFLAGS := $(GOFLAGS) -trimpath
export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help
.PHONY: help run build check format vet staticcheck generated tidy test test-commands test-packages short root bench fuzz crash sim sim-check sim-night sim-mutants upgrade-matrix soak editors long memory conformance pictures generate catalogue install uninstall dist dist-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## start a daemon of its own, prompt it through the socket, show the conversation, stop it
	@scripts/run

build: ## build bin/noused and bin/nous (CGO_ENABLED=1: names of hosts and users come from the C library)
	go build -o bin/ ./cmd/noused ./cmd/nous

check: format generated tidy vet staticcheck test sim-check ## everything below, as before a commit

format: ## code that gofumpt would change
	@files=$$(go tool gofumpt -l .); test -z "$$files" || { printf 'gofumpt would change:\n%s\n' "$$files" >&2; exit 1; }

vet: ## go vet
	go vet ./...

staticcheck: ## staticcheck
	go tool staticcheck ./...

generated: ## generated documents that the code no longer says
	@{ go run ./internal/protocol/gen | diff -u docs/protocol-openapi-like.json - && \
	go run ./internal/protocol/gen python | diff -u clients/python/noused/types.py - && \
	go run ./internal/protocol/gen typescript | diff -u clients/typescript/types.d.ts -; } || { echo 'run make generate' >&2; exit 1; }

tidy: ## go.mod and go.sum that go mod tidy would change
	go mod tidy -diff

# Tests are run, not remembered (-count=1): Go does not see the programs that they build.
# What go vet has to say, make vet has said; nobody debugs these programs.
TESTED   := -vet=off -ldflags='-s -w'
TEST     := go test -count=1 -timeout 45m $(TESTED)
PROGRAMS := $(CURDIR)/bin/tested
# The race detector looks at goroutines where they are: in the tests' own process, and in
# the packages that start one or hold a lock. It makes a test up to ten times as slow, and
# the start of a program three times. The commands' tests start hundreds of those: RACED
# are run with it, each kind of program and of trouble once. LONE have one goroutine, or much
# data that others have little of, or try other programs: git, what runs in the sandbox.
# What is run with it is not run again without.
RACED = Transcripts|InvariantsWithSeveralClients|KilledAtAnyMoment|EverythingSentBeforeAStop|BurstsOfDeltas|DiskUse|WhatTheWatchdog|ModulesOfEveryKind|ALoginAtAnMCPServer|AFleetHasTheDaemonsEvents|AJobSurvivesAKill|ASignalDuringARestart|LostConnectionGoesOn|RestartedDaemonGoesOn|ATextIsSentAgain|FirstInterrupt|ApprovalsThatAreNotKnownYet|ProxyJoins|AFleetIsWatched|ManyClientsStartOneDaemon
LONE = DyingAtEveryWriteAndSync|SearchIsBounded|LongQuestionsLeaveRoom|LongSessionIsTheSameWithItsIndex|MillionSteps|AcrossRestarts|FoldOfTheJournal|EveryTextHasOneFate|TheJournalCannotHold|HostileApprovals|ALandingThat|NoLinkOpensWhat|ToolchainsInTheHome|KeysInTheHome|AwkwardRepositories|ARewindRestores|AKillLeavesNoHalf|ConversationComesInPages|SearchGetsOverDamage|ALongEventReachesEveryReader|StandStillInLongLines|LargeReplies|CutAtEveryByte|TextsThatAreInTheJournal|TextsOfAJournal|EndOfALongSession|TheRestAreTheFold|TornTailAtEveryByte|ManySessionsShareTheirMemory|OtherCheckoutIsOverwritten|LandingAgain|LandingBrings|AConflictChangesNothing|HostileRepositoryNames|RemoveLosesNothing
SHARED = grep -rlE --include='*.go' --exclude='*bench_test.go' '^[[:space:]]*go (func|[[:alnum:]_.]+)\(|\.Go\(|sync\.(Map|Cond|RWMutex|Mutex|WaitGroup)|atomic\.|errgroup' internal | xargs -n1 dirname | sort -u | sed 's|^|noused/|'
test: ## all tests, with the race detector where it tells something
	@mkdir -p $(PROGRAMS)
	@go build -buildvcs=false -ldflags='-s -w' -o $(PROGRAMS) ./cmd/noused ./cmd/nous
	@NOUSED_TEST_PROGRAMS=$(PROGRAMS) $(MAKE) --no-print-directory -j2 test-commands test-packages

# A raced process sleeps for a second as it ends, unless it is told otherwise.
test-commands test-packages: export GORACE := atexit_sleep_ms=0
test-commands:
	$(TEST) -skip '$(RACED)' ./cmd/...
	CGO_ENABLED=1 $(TEST) -race -run '$(RACED)' ./cmd/...
test-packages:
	CGO_ENABLED=1 $(TEST) -race -skip '$(LONE)' $$($(SHARED))
	$(TEST) $$(go list ./internal/... | grep -vxFf <($(SHARED)))
	$(TEST) -run '$(LONE)' $$(grep -lE '^func Test\w*($(LONE))' $$(find internal -name '*_test.go') | xargs -n1 dirname | sort -u | sed 's|^|./|')

short: ## the tests that take little, without the race detector
	go test -short -timeout 5m $(TESTED) ./...

# They end in AsRoot (internal/testenv), and skip themselves for anybody else.
root: ## the few tests that need root, to be run by root
	go test -v -timeout 5m $(TESTED) -run AsRoot $$(grep -rl --include='*_test.go' 'AsRoot(t \*testing' . | xargs -n1 dirname | sort -u)

bench: ## benchmarks of the hot paths, each beside the raw limit (BENCH=regexp)
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./... | awk -f scripts/ratio.awk

fuzz: ## every fuzz target for FUZZTIME (30s) each
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
		done; \
	done

crash: ## kill a daemon under its clients, again and again, for CRASHTIME (2m)
	NOUSED_CRASHTIME=$(CRASHTIME) go test -run "KilledAtAnyMoment|KilledWhileRunsAsk" -timeout 24h -v ./cmd/noused

SOAK ?= 30m
sim: ## run SEEDS (50) histories of the simulator, or show that of SEED
	go test -count=1 -tags sim -timeout 0 ./internal/sim -run TestSeeds -v -args $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),50))

sim-check: ## 200 histories of the simulator, and some of them twice
	go vet -tags sim ./internal/sim
	go test -tags sim ./internal/sim

sim-night: ## a million histories of the simulator from FROM (1) on, those that fail as short as they can be
	go test -count=1 -tags sim -timeout 0 ./internal/sim -run TestSeeds -v -args -all -seeds $(or $(SEEDS),1000000) -from $(or $(FROM),1)

sim-mutants: ## whether the simulator finds each small change that breaks something: all, or MUTANTS=five of the day
	go test -count=1 -tags sim -timeout 0 ./internal/sim -run 'TestMutants$$' -v -args -mutants '$(or $(MUTANTS),all)'

# There is no tag yet: the first release, the first version with images, the first with
# approvals, and the last of each day since.
RELEASES ?= $(or $(shell git tag --list 'v*'),54218db6 262dcc3 a2380f48 66696f08 1e80ca12 1e0936c3 8380d342)
upgrade-matrix: ## live runs from every released version (RELEASES) to this one and back, by kill, stop and restart
	NOUSED_TEST_RELEASES='$(RELEASES)' go test -count=1 -run 'TestUpgradeMatrix$$' -timeout 2h -v ./cmd/noused

soak: build ## two daemons under a mixed load for SOAK (30m), one of them killed again and again: nothing may grow, nothing be lost
	go run ./internal/soak -noused bin/noused -for $(SOAK)

editors: ## nous acp under the official client and acpx, from npm (needs a network)
	NOUSED_TEST_EDITORS=1 NOUSED_CRASHTIME=$(CRASHTIME) go test -run 'OfficialClient|Acpx|EverythingIsKilled' -timeout 1h -v ./internal/acp/bridge

AGENTS ?= $(HOME)/.cache/noused-test/agents
real-agents: ## codex, claude, gemini, qwen and opencode, from npm (1.5 GB, kept in AGENTS), hosted against a stand-in for their models
	NOUSED_TEST_AGENTS=$(AGENTS) go test -count=1 -run TestRealAgents -timeout 1h -v ./cmd/noused

long: ## a session of TURNS (2000) turns with tools, over both wires, PROMPTS (10000) one upon the other, 500 actions seen on two screens, 1000 tries to get in
	NOUSED_TURNS=$(TURNS) NOUSED_PROMPTS=$(PROMPTS) go test -run 'LongSession|ManyPrompts' -timeout 24h -v ./cmd/noused
	go test -run AfterEveryAction -timeout 1h ./cmd/nous -walk-steps 500
	go test -run NoToolInASandboxGetsIn -timeout 1h ./internal/server

memory: ## what the daemon takes at most, for docs/performance.md (needs 2 GB of disk)
	NOUSED_MEMORY=full go test -count 1 -run "TestMemoryOf|IsBounded|AreBoundedTogether" -timeout 60m -v ./cmd/noused | grep -v '"level":'

conformance: ## the official conformance suite for MCP clients, from npm (CONFORMANCE=version); it needs a network
	@scripts/conformance

pictures: ## write the pictures of the screen in docs anew
	NOUS_PICTURES=$(CURDIR)/docs go test -count=1 -run TestPictures ./cmd/nous

generate: ## write the generated documents anew
	go generate ./...

CATALOGUE ?= latest
catalogue: ## write the catalogue of models anew, from what is published now (CATALOGUE=version)
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	(cd "$$dir" && npm pack --silent @earendil-works/pi-ai@$(CATALOGUE) >/dev/null && tar xzf *.tgz); \
	version=$$(sed -n 's/^ *"version": "\(.*\)",*/\1/p' "$$dir/package/package.json"); \
	go run ./internal/model/catalogue/gen "$$dir/package/dist/providers/data" @earendil-works/pi-ai "$$version" >"$$dir/table.tsv"; \
	mv "$$dir/table.tsv" internal/model/catalogue/table.tsv; go test ./internal/model/catalogue

SHARE = $(DESTDIR)$(PREFIX)/share
UNITS = $(notdir $(wildcard deploy/systemd/*))

install: build ## programs, manual and completions below PREFIX (~/.local), units to ~/.config/systemd/user (DESTDIR honoured)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(UNITDIR)
	install -m 755 bin/noused bin/nous $(DESTDIR)$(PREFIX)/bin/
	scripts/share bin $(SHARE)
	for unit in $(UNITS); do \
		sed 's|%h/.local/bin/noused|$(PREFIX)/bin/noused|' deploy/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit || exit; \
	done
	@echo
	@echo 'To have clients wake the daemon:'
	@echo '  systemctl --user daemon-reload && systemctl --user enable --now noused.socket noused-events.socket'

uninstall: ## remove what make install has put there; configuration and sessions stay
	@pid=$$('$(PREFIX)/bin/nous' status 2>/dev/null | sed -n 's/.*process \([0-9]*\).*/\1/p'); \
	[ -z "$$pid" ] || echo "a daemon runs, and goes on: kill $$pid stops it"
	rm -f $(DESTDIR)$(PREFIX)/bin/{noused,nous} $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -f $(SHARE)/man/man?/{nous,noused}{,[-.]*}.?
	rm -f $(SHARE)/bash-completion/completions/{noused,nous} $(SHARE)/zsh/site-functions/_{noused,nous}
	rm -f $(SHARE)/fish/vendor_completions.d/{noused,nous}.fish

dist: ## deb, rpm and tar.gz of what is committed, for amd64 and arm64, and the clients for pip and npm, in dist
	@scripts/dist

dist-check: ## package twice, compare, and install, use and purge in clean roots what this machine can (as root: all of it)
	@scripts/dist-check

clean: ## remove what was built
	rm -rf bin dist
