# Everything a contributor needs to type. Bare `make` lists the targets; each
# is described by the comment that begins with ## on its line.

# The toolchain that go.mod asks for, in every module, also where GOTOOLCHAIN=local.
export GOTOOLCHAIN := $(shell awk '$$1 == "toolchain" { print $$2 }' go.mod)

FUZZTIME ?= 30s
BENCHFLAGS ?=
STEADY ?= 10m
KILLS ?= 20m
ROUNDS ?= 10
# e2e is the longest and mostly waits for processes and disks, so it begins first and leaves a processor for one more package. A
# collector that runs less often saves a sixth of the processor time of compiling and testing.
TESTPACKAGES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TESTGOGC ?= 400
# In a clone without a remote, goreleaser takes nothing from git, not even the time of the commit; so it is told of one.
RELEASER := GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/chubbylock/chubby go tool -modfile=tools/release/go.mod goreleaser
# An adapter is a module of its own below contrib, and is found by its go.mod.
ADAPTERS := $(patsubst %/go.mod,%,$(wildcard contrib/*/go.mod))
# go test prints packages in the order of its arguments, so that the longest hides the others until it ends; gotestsum shows each at its end.
SHOWN := go tool -modfile=tools/go.mod gotestsum --format standard-quiet
MUTANTS := go -C tools run ./mutants
MUTATED := ./session ./namespace ./sequencer ./refusal
MUTATEDINPARTS := ./raftfsm ./cell/internal/master ./cell/internal/master/tables ./cell/internal/wire ./cell/internal/disk ./cell/internal/peer ./client ./internal/supervise
# Of these packages only the mutants that marks describe are run.
MARKED := ./cell ./cell/recovery ./cell/internal/audit ./cell/internal/console ./cell/internal/fsm ./client/recipe ./cmd/chubbyd/internal/names \
  ./internal/certs ./internal/cowmap ./internal/frames ./internal/hold ./internal/tokens
LINT := go tool -modfile=tools/lint/go.mod golangci-lint
GENERATED := api/chubbypb/chubby.pb.go api/chubbypb/chubby_grpc.pb.go

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build bin/chubbyd, bin/chubbyctl and bin/chubbyctl-recipes
	@mkdir -p bin
	@# The first build compiles all libraries, and may fetch the toolchain: on a terminal it shows each package when it is compiled.
	@[ -x bin/chubbyd ] || echo "building: the first time takes a few minutes, and fetches the toolchain and libraries"
	go build $$([ -x bin/chubbyd ] || [ ! -t 2 ] || echo -v) -o bin/ ./cmd/chubbyd ./cmd/chubbyctl
	go -C contrib/recipes build -o "$(CURDIR)/bin/" ./cmd/chubbyctl-recipes

.PHONY: run
run: build ## start a cell of five replicas on this machine
	@exec ./bin/chubbyd dev

.PHONY: demo
demo: ## show a primary election and what a sequencer stops
	./examples/primary/demo.sh

.PHONY: test
test: ## run every test of the module, about 5 minutes on two processors; with CI set, as in .ci/run, under the race detector
	@echo "testing: $(if $(CI),some 10 minutes,about 5 minutes) on two processors, and some more the first time; cell and e2e are the longest"
	GOGC=$(TESTGOGC) $(SHOWN) -- $(if $(CI),-race) -timeout 30m -p $(TESTPACKAGES) ./e2e ./...

.PHONY: test-more
test-more: ## run the tests of the modules beside it: contrib, the SQL example, bench and tools
	go -C bench test -timeout 10m ./... # alone, because it counts what all processes send
	@# The others mostly wait for processes and disks, so as many run at once as packages do in test; what each prints stays together.
	@# tools reads the files of the module beside it, which the cache does not see.
	@printf '%s\n' 'contrib -race' $(ADAPTERS:%='% -race') 'examples/sqlfence -race' 'tools -count=1' | \
	  xargs -P $(TESTPACKAGES) -L 1 sh -c 'module=$$1; shift; printed=$$(go -C $$module test -timeout 15m "$$@" ./... 2>&1); status=$$?; \
	  printf "%s\n" "$$printed"; exit $$status' test-more
	./test/release-source.sh --check

.PHONY: contract
contract: build ## try every verb, flag, JSON field and exit code on a live cell
	./test/contract.sh

.PHONY: pages
pages: build ## do what the pages for operators say, word for word, on hosts that are namespaces (as root, on Linux)
	go -C tools run ./pages

.PHONY: race
race: ## run every test three times over, in a random order, under the race detector
	go test -race -count 3 -shuffle on -timeout 30m ./...

.PHONY: acceptance
acceptance: ## repeat the drills as often as the promises say (ROUNDS=10)
	go test -race -count 1 -timeout 30m -v ./e2e -rounds $(ROUNDS)
	go test -race -count 1 -timeout 30m -v -run 'CachesWhileMastersDie|MasterPaused|ClientPaused|SilentHolder' ./e2e -full -rounds $(ROUNDS)
	go test -count 1 -timeout 10m -v -run 'KilledWithCaches|ManySessions|TestTransfer' ./e2e -full
	go test -count 1 -timeout 30m -v -run 'TestLostReplies|TestForcedLoss' ./cell -mutations 10000 -losses 1000
	go test -count 1 -timeout 30m -v -run 'TestReplicasApplyTheSame' ./cell/internal/peer -returns 2000
	go test -count 1 -timeout 20m -v -run 'TestGuard$$' ./e2e -full
	go test -count 1 -timeout 25m -v -run 'TestAttacks$$' ./e2e -full

.PHONY: attacks
attacks: ## attack a cell as strangers might, with an honest client beside, ten minutes (writes docs/attacks.md)
	go test -count 1 -timeout 25m -v -run 'TestAttacks$$' ./e2e -full -docs ../docs/attacks.md

.PHONY: trace-example
trace-example: ## trace a command that waits, on a cell of processes (writes the picture in docs/monitoring.md)
	go test -count 1 -v -run 'TestTrace$$' ./e2e -trace-page ../docs/monitoring.md

.PHONY: endurance
endurance: ## run the tests of limits at their full size, and an hour of random clients and troubles
	go test -count 1 -timeout 60m -v -run 'TestDyingNodes|TestReplicasRestart|TestMailboxLosesNothing|TestCrowd$$' ./cell ./cell/internal/master ./cell/internal/master/tables -full
	go test -race -count 1 -timeout 60m -v -run 'TestCachesAreConsistent|TestCachedIsUncached|TestDisksLost|TestEventsAfterHandOvers|TestEventsOfManyChildren|TestRestore$$|TestForcedRecovery' ./cell -full
	go test -count 1 -timeout 60m -run TestMemberHistories ./cell -histories 1000
	go test -count 1 -timeout 30m -v -run TestMillion ./raftfsm -ops 1000000
	go test -count 1 -timeout 30m -v -run 'Random|Storm' ./client/recipe -rounds 10000
	go test -count 1 -timeout 30m -v -run Scenario ./client -five -scenario 1h

.PHONY: kills
kills: ## kill and stop replicas with slow disks while entries are on their way to the master's log, for KILLS (20m; needs strace)
	go test -count 1 -timeout 12h -v -run 'TestKills$$' ./e2e -kills $(KILLS)

.PHONY: nightly
nightly: ## run race, acceptance, endurance, kills, mutants, fuzz and steady, some hours (writes docs/dev/nightly.md)
	./test/nightly.sh

.PHONY: allocations
allocations: ## count what the hot paths allocate, and compare it with docs/dev/allocations.md
	./test/allocations.sh

.PHONY: mutants
mutants: ## change the source in small ways, one at a time; a test has to notice (of the large packages a seventh each day)
	status=0; \
	$(MUTANTS) $(MUTATED) || status=1; \
	$(MUTANTS) -tolerant -part $$(date +%u)/7 $(MUTATEDINPARTS) || status=1; \
	$(MUTANTS) -marks $(MARKED) || status=1; \
	$(MUTANTS) -root ../contrib/recipes -marks . || status=1; \
	exit $$status

.PHONY: mutants-changed
mutants-changed: ## the same for lines that changed since main (on main: since the commit before), two minutes at most
	$(MUTANTS) -budget 2m -changed $(MUTATED) $(MUTATEDINPARTS)

.PHONY: lint
lint: ## run golangci-lint (built on first use, about two minutes)
	$(LINT) run ./...

.PHONY: generate
generate: ## generate Go code from chubby.proto, and the reference pages (docs/cli.md, chubbyd.md, metrics.md, client-metrics.md) and the packaged configuration
	go -C tools run ./protogen ../api/chubbypb/chubby.proto
	go test ./cmd/chubbyctl -count 1 -run '^TestReference$$' -update
	go test ./cmd/chubbyd -count 1 -run '^TestReference$$' -update
	go test ./cell ./client/clientprom -count 1 -run '^TestMetricsPage$$' -update

.PHONY: release-source
release-source: ## keep the source of the release REF, from which the test of upgrades starts (REF=v0.1.0)
	./test/release-source.sh "$(REF)"

.PHONY: release-snapshot
release-snapshot: ## build the archives, packages, SBOMs and checksums of a release into dist, and publish nothing (the tools are built on first use, some minutes)
	$(RELEASER) release --snapshot --clean

.PHONY: release-files
release-files: # what .goreleaser.yaml packs beside the programs and is not in the repository
	rm -rf bin/release
	mkdir -p bin/release/completions bin/release/man bin/release/manual
	CGO_ENABLED=0 go build -trimpath -o bin/release/ ./cmd/chubbyd ./cmd/chubbyctl # compiled as those of the release are, once for both
	for program in chubbyctl chubbyd; do \
	  for shell in bash fish zsh; do ./bin/release/$$program completion $$shell >bin/release/completions/$$program.$$shell || exit 1; done; \
	done
	./bin/release/chubbyctl completion powershell >bin/release/completions/chubbyctl.ps1
	go test -count 1 -run TestManualPages ./cmd/chubbyctl ./cmd/chubbyd -args -man "$(CURDIR)/bin/release/manual"
	for page in bin/release/manual/*; do gzip -9 -n <$$page >bin/release/man/$$(basename $$page).gz || exit 1; done
	gzip -9 -n <CHANGELOG.md >bin/release/CHANGELOG.md.gz

.PHONY: image
image: ## build dist/chubby-image.tar, a container image of chubbyd and chubbyctl for amd64 and arm64 (OCI), without a daemon
	go -C tools run ./image -source .. -output ../dist/chubby-image.tar

.PHONY: verify-packages
verify-packages: ## build a release twice, compare, and install, start, upgrade and remove the packages (as root, on Debian)
	./test/packages.sh

.PHONY: verify
verify: verify-format verify-vet verify-tidy verify-generated ## check format, vet, go.mod files and generated code

.PHONY: verify-format
verify-format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
	  echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: verify-vet
verify-vet: # what tests run with -race is compiled so, once for both
	for module in . contrib $(ADAPTERS) examples/sqlfence; do go -C $$module vet -race ./... || exit 1; done
	for module in bench tools; do go -C $$module vet ./... || exit 1; done

.PHONY: verify-tidy
verify-tidy:
	go mod tidy -diff
	for module in bench contrib $(ADAPTERS) examples/sqlfence tools tools/lint tools/promtool tools/release tools/s3; do go -C $$module mod tidy -diff || exit 1; done

.PHONY: verify-alerts
verify-alerts: build ## check alerts, their tests and the dashboard, beside a live replica (promtool is built on first use)
	./test/alerts.sh

# Generates into a copy, so that a check changes nothing.
.PHONY: verify-generated
verify-generated:
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	  cp api/chubbypb/chubby.proto "$$copy" && go -C tools run ./protogen "$$copy/chubby.proto" && \
	  for file in $(GENERATED); do \
	    cmp "$$copy/$$(basename $$file)" $$file || { echo "$$file is not what chubby.proto says; run make generate"; exit 1; }; \
	  done

.PHONY: manifests
manifests: ## make deploy/kubernetes of the Helm chart
	./test/kube.sh --write

.PHONY: verify-kube
verify-kube: ## check the Helm chart and the manifests made of it, and run a rendered cell (as root, on Linux); builds helm, some minutes
	for module in tools/kube tools/kubescore; do go -C $$module mod tidy -diff || exit 1; done
	go -C tools/kube vet ./...
	./test/kube.sh
	./test/kubecell.sh

.PHONY: verify-console
verify-console: build ## visit the console of a real cell with Chromium, and do every act (needs chromium and npm; PICTURES=bin/console writes pictures; LARGE=10000 measures in a cell with so many sessions and locks instead)
	go -C tools/console mod tidy -diff
	go -C tools/console vet .
	npm --prefix tools/console ci --ignore-scripts --no-audit --no-fund --silent
	$(if $(PICTURES),mkdir -p $(PICTURES))
	go -C tools/console run . $(if $(PICTURES),-pictures $(abspath $(PICTURES))) $(if $(LARGE),-large $(LARGE))

.PHONY: console-pictures
console-pictures: ## draw the pictures in docs/console again, which are those that pages show (needs what verify-console needs)
	$(MAKE) verify-console PICTURES=bin/console
	for picture in docs/console/*.png; do cp bin/console/$$(basename $$picture) $$picture || exit 1; done

.PHONY: dashboard-picture
dashboard-picture: build ## draw the dashboard of a real cell with a fail-over, under a real Prometheus, six minutes (needs chromium and npm; writes docs/monitoring)
	go -C tools/dashboard mod tidy -diff
	go -C tools/dashboard vet .
	npm --prefix tools/dashboard ci --ignore-scripts --no-audit --no-fund --silent
	go -C tools/promtool build -tags remove_all_sd -o $(CURDIR)/bin/prometheus github.com/prometheus/prometheus/cmd/prometheus
	go -C tools/dashboard run . -pictures $(CURDIR)/docs/monitoring $(if $(RECORDING),-recording $(abspath $(RECORDING)))

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME each (30s)
	@failed=; for file in $$(grep -rlE --include='*_test.go' --exclude-dir=bench --exclude-dir=contrib --exclude-dir=tools '^func Fuzz' . | sort); do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
	    echo "$$(dirname $$file) $$target"; \
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$(dirname $$file) || failed="$$failed $$target"; \
	  done; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed; the inputs are in testdata/fuzz beside each test (to keep one, see internal/seeds)"; exit 1; fi

.PHONY: bench
bench: ## measure a cell of five processes on this machine (BENCHFLAGS=-h lists the flags)
	go -C bench run . -systems chubby $(BENCHFLAGS)

.PHONY: bench-etcd
bench-etcd: ## measure the cell and a pinned etcd of five processes, by turns
	go -C bench run . -systems chubby,etcd $(BENCHFLAGS)

.PHONY: bench-peers
bench-peers: ## measure the cell, etcd, ZooKeeper and Redis, by turns, half an hour (writes docs/performance.md)
	go -C bench run . -systems chubby,etcd,zookeeper,redis -etcd-all -measure 3s -docs ../docs/performance.md $(BENCHFLAGS)

.PHONY: bench-page
bench-page: ## write docs/performance.md and its plots again from the results of the last make bench-peers
	go -C bench run . -from ../docs/performance/results.json -docs ../docs/performance.md

.PHONY: bench-disks
bench-disks: ## measure the cell, etcd and ZooKeeper with slower disks and farther apart, by turns, half an hour (on Linux; writes docs/disks.md); fails where an aim is missed
	go -C bench run . -disks -systems chubby,etcd,zookeeper -etcd-all -warm 300ms -measure 1500ms -kills 1 -docs ../docs/disks.md $(BENCHFLAGS)

.PHONY: bench-disks-page
bench-disks-page: ## write docs/disks.md and its plots again from the results of the last make bench-disks
	go -C bench run . -disks -from ../docs/disks.json -docs ../docs/disks.md

.PHONY: bench-crowd
bench-crowd: ## measure what 10,000 and 100,000 sessions cost, and etcd beside the first, twenty minutes (writes docs/crowd.md)
	go -C bench run . -systems chubby,etcd -etcd-all -crowd 10000,100000 -docs ../docs/crowd.md $(BENCHFLAGS)

.PHONY: bench-tls
bench-tls: ## measure what certificates cost, in pairs, ten to twenty minutes (writes docs/tls.md); fails above 15 %
	go -C bench run . -pairs -systems chubby,chubby-tls -rounds 41 -warm 100ms -measure 400ms -at-most 1.15 -docs ../docs/tls.md $(BENCHFLAGS)

.PHONY: bench-metrics
bench-metrics: ## measure what metrics and traces cost with 64 clients, in pairs, a quarter of an hour (writes docs/measuring.md); fails above 2 % of processor time
	go -C bench run . -pairs -systems chubby-unmeasured,chubby-traced -rows ", 64" -starts 10 -rounds 8 -warm 100ms -measure 300ms -processor-at-most 1.02 -docs ../docs/measuring.md $(BENCHFLAGS)

.PHONY: bench-growth
bench-growth: ## measure the cell as its nodes, sessions, replicas and contenders become more, half an hour (writes docs/growth.md)
	go -C bench run . -systems chubby -growth -measure 15s -docs ../docs/growth.md $(BENCHFLAGS)

.PHONY: sizing
sizing: ## measure what one session, one program, one node, one write costs, fifteen minutes (writes docs/sizing.md and what chubbyctl sizing reckons with)
	go -C bench run . -systems chubby -sizing -docs ../docs/sizing.md $(BENCHFLAGS)

.PHONY: steady
steady: ## keep a cell under load beside two busy loops for STEADY (10m); its master must not change
	go -C bench run . -systems chubby -steady $(STEADY) $(BENCHFLAGS)

.PHONY: cross
cross: ## build for the systems beside Linux: everything, and for windows the client and chubbyctl
	@set -e; for system in darwin/arm64 freebsd/amd64 windows/amd64; do \
	  echo $$system; export GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0; \
	  go build -o /dev/null ./cmd/chubbyctl; go build ./client/... ./sequencer/...; go -C contrib/recipes build -o /dev/null ./cmd/chubbyctl-recipes; \
	  if [ $$GOOS != windows ]; then \
	    go build -o /dev/null ./cmd/chubbyd; go vet ./cell/... ./cmd/...; \
	  fi; \
	done

.PHONY: clean
clean: ## remove what make built
	rm -rf bin dist
