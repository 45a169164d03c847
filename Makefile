# What is not here is an ordinary go command: `go test ./...` passes the tests, `go run ./cmd/whylate demo` runs the main job.

FUZZTIME ?= 5s

VERSION ?= 0.0.0-dev

OLD ?=

.PHONY: signals dist upgrade-test build test lint race fuzz bench bench-long probe-test probe-wheel probe-native scheduler-diff engine-env engine-smoke engine-test overhead blame whatif-proof fixture vectors openapi

build:
	go build -o whylate ./cmd/whylate

test:
	go test ./...

# gofmt, vet and staticcheck; all of them must have nothing to say.
lint:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go tool staticcheck ./...

race:
	go test -race -short ./...

# Every fuzz target for $(FUZZTIME): their seeds are real captures, and run in the ordinary tests too. Go calls it a failure when the time is
# up while a worker is busy; that is no finding.
fuzz:
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$target"; \
	    out=$$(go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg 2>&1) && echo "$$out" | tail -n 2 || { \
	      echo "$$out"; \
	      case "$$out" in *"Failing input"*|*panic*) exit 1;; *"context deadline exceeded"*) echo "(the time was up while a worker was busy: no finding)";; *) exit 1;; esac; }; \
	  done; \
	done

# Figures of codec, capture, assembling and account, with their budgets (DESIGN §13). FIGURES=1 keeps them in docs/figures.tsv.
bench:
	go run ./internal/bench

# The figures that take hours: stores of 10⁷ and 10⁸ iterations (about 15 GB in the temporary directory), half an hour of a hundred engines.
bench-long:
	go run ./internal/bench -long

# The probe's own tests, without an engine. Those that need vLLM's classes skip themselves, and run where engine-env has made one.
probe-test:
	scripts/probe-tests.sh

# The probe as wheels in dist/, to be installed offline: in Python alone, and with the native helper for this platform.
probe-wheel:
	scripts/probe-wheel.sh

# The probe's native helper, built among its sources.
probe-native:
	scripts/probe-native.sh

# The ledger against the scheduler classes of real engines, driven without a model: about 5 minutes a version, and 6 GB each for
# their environments. SEED=2 is another load; WHYLATE_NATIVE=off leaves the native helper out; FIGURES=1 keeps the figures. In a short run what is rare may not occur.
VERSIONS ?= 0.20.2 0.24.0 0.30.0 0.32.0
ITERATIONS ?= 100000
SEED ?= 1
scheduler-diff:
	-scripts/probe-native.sh
	go run ./internal/schedulerdiff -versions "$(VERSIONS)" -iterations $(ITERATIONS) -seed $(SEED)

# The environment of a real engine, outside the repository, about 6 GB.
engine-env:
	scripts/engine-env.sh 0.32.0

# The whole way on a real engine: about 6 minutes with the environment made, 10 without.
engine-smoke:
	go run ./internal/enginesmoke

# What whylate costs a real engine, on against off: about 20 minutes alone on the machine. SHAM=1 compares off with off. FIGURES=1 keeps
# the figures, and the table in docs/overhead.md; JSON=file the values of each run.
PAIRS ?= 6
LOAD ?= 25s
overhead:
	go run ./internal/overhead -pairs $(PAIRS) -for $(LOAD) $(if $(SHAM),-sham) $(if $(JSON),-json $(JSON))

# Whether what explain charges to a culprit is what its victims lose to it, on a real engine: about 20 minutes, alone on the machine
# (docs/blame.md). ONLY=long,pool plays some cases; BLAME_DIR keeps the run there, and judges again what lies there.
ONLY ?=
REPEATS ?= 0
blame:
	go run ./internal/blame -only "$(ONLY)" -repeats $(REPEATS)
# What the simulator predicts of a real engine's second half of a run, and of two changed settings, against what the engine does
# (docs/fidelity.md). WHATIF_DIR keeps the captures, and judges again what lies there.
whatif-proof:
	go run ./internal/whatifproof
# Real engines in every weather: four versions, cold starts, several servers and ranks, frozen and killed processes, slow clients, every
# fault around the probe. About 30 minutes on two cores with the environments made (6 GB and 5 minutes each); as root, since it mounts
# and changes users. SCENARIOS=kv,frozen plays those alone, on the last version; FIGURES=1 keeps the figures.
SCENARIOS ?=
engine-test:
	go run ./internal/enginetest -versions "$(VERSIONS)" -only "$(SCENARIOS)"

# A new run of the real engine as the demo's fixture.
fixture:
	FIXTURE=cli/demo.wlc go run ./internal/enginesmoke

# The description of the HTTP API, from routes, types, their comments, and answers.
openapi:
	go test ./web -run OpenAPIIsUpToDate -update

# The wire's test vectors, from docs/formats/stream.md by the Go codec.
vectors:
	go test ./wire -run Vectors -update

# The archives of a release in dist/: binaries, licences, units, checksums.
dist:
	scripts/dist.sh $(VERSION)

# An earlier commit's server, upgraded in place to this one's: the same answers. OLD=COMMIT names it; the newest tag otherwise.
upgrade-test:
	scripts/upgrade-test.sh $(OLD)

# The registry of signals in Go and in docs/signals.md, from signals/signals.yaml.
signals:
	cd signals && go run ../internal/signalsgen
