# Everynode's tasks. `make` alone lists them.

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# The version of the Kubernetes API that is served: that of the k8s.io modules.
KUBERNETES := $(shell sed -n 's,^.k8s.io/apiserver v0\.,v1.,p' go.mod)
COMMIT     := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE       := $(shell git log -1 --format=%cI 2>/dev/null || echo 1970-01-01T00:00:00Z)
BASE       := k8s.io/component-base/version
LDFLAGS    := -s -w \
  -X github.com/everynode/everynode/internal/version.Version=$(VERSION) \
  -X $(BASE).gitVersion=$(KUBERNETES) -X $(BASE).gitCommit=$(COMMIT) -X $(BASE).gitTreeState=clean -X $(BASE).buildDate=$(DATE) \
  -X $(BASE).gitMajor=1 -X $(BASE).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))
EMBEDDED   := internal/images/embedded
GO         := CGO_ENABLED=0 go

.PHONY: help
help: ## List the tasks.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: deps
deps: ## Install what nodes on this machine and the tests need (containerd, runc, CNI plugins, Chromium, ...), if it is missing.
	@hack/install-deps.sh tests
	@hack/promtool.sh

.PHONY: images
images: ## Build the programs of the images that come with Everynode.
	@mkdir -p $(EMBEDDED)
	@$(GO) build -trimpath -ldflags '-s -w' -o $(EMBEDDED)/pause ./cmd/pause
	@$(GO) build -trimpath -ldflags '-s -w' -o $(EMBEDDED)/demo ./cmd/demo

.PHONY: build
build: images ## Build bin/everynode.
	@LDFLAGS='$(LDFLAGS)' hack/build.sh

.PHONY: up
up: build ## Start a cluster of three nodes on this machine and run a daemon on each.
	@hack/install-deps.sh
	@bin/everynode up --detach
	@hack/try-example.sh

.PHONY: down
down: ## Stop the cluster and remove it from this machine.
	@bin/everynode down --purge

.PHONY: quick
quick: ## Check the format, and run every test that needs neither a server nor root.
	@hack/quick.sh

.PHONY: test
test: deps build ## Check style and run the tests that every change must pass; takes minutes, needs root for real nodes.
	@hack/test.sh

.PHONY: test-all
test-all: deps build ## Run every test: all stories, charts, the dashboard in a browser, attacks, faults, a thousand nodes.
	@hack/test.sh all

# Programs that others publish as Go modules. They are kept, for all clones.
PUBLISHED ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode/published

.PHONY: published
published: deps build ## Run programs of others, got from Debian and built from their Go modules, on real nodes; needs root.
	@hack/published-programs.sh '$(PUBLISHED)' '$(FOREIGN)'
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 40m -v -run '^TestPublished$$' ./test/stories -published -programs '$(PUBLISHED)'

# The newest containerd and runc. They are kept, for all clones.
NEWEST ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode/newest-runtime

.PHONY: newest
newest: deps build ## Run all stories, and those of image volumes, on the newest containerd and runc, which it builds first; needs root.
	@hack/newest-runtime.sh '$(NEWEST)'
	@PATH="$(NEWEST):$$PATH" EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 40m -v -run '^TestOn(NewestContainerd|Containers)$$' ./test/stories -newest

.PHONY: test-helm3
test-helm3: build ## Install the test charts with Helm 3 as well; make test does with Helm 4.
	@hack/helm.sh v3
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -v -run 'TestCharts/v3' ./test/helm

.PHONY: test-members
test-members: deps build ## Lose servers of three in many ways, with real nodes; takes some minutes, needs root.
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 30m -v -run 'OfThree|ThreeServers' ./test/stories -members

# Empty is the release before, or, as long as there is none, a commit of a while ago.
FROM ?=

# Names of test/upgrade/main.go with commas between them; empty is all.
SCENARIOS ?=

ENTRIES ?= 100000

# A kind and a list of it as patterns of go test -run, with each $ doubled. Empty is all.
COST ?=

.PHONY: test-cost
test-cost: ## Measure what objects with very long lists cost, each list of each kind in turn (ENTRIES=100000); takes an hour, one list less (COST='^pods$$/^Spec.Volumes$$').
	@$(GO) test -trimpath -count 1 -timeout 4h -v -run '^TestCostOfAnObject$$/$(COST)' ./internal/apiserver/resource -entries $(ENTRIES)

.PHONY: test-upgrade
test-upgrade: deps build ## Upgrade a small cluster from the release before, of one server and of three, and back (FROM=v0.1.0 SCENARIOS=steps,content,middle,turns,sizes,variants,agents).
	@SCENARIOS='$(SCENARIOS)' hack/test-upgrade.sh $(FROM)

NODES ?= 1000
# DaemonSets on each node; the first of them is updated and deleted.
DAEMONSETS ?= 1

.PHONY: bench
bench: build ## Measure with simulated nodes and print a table (NODES=1000,5000 DAEMONSETS=20).
	@$(GO) run ./test/scale -nodes $(NODES) -daemonsets $(DAEMONSETS)

AGENTS ?= 100,500

.PHONY: bench-agents
bench-agents: build ## Measure what agents with connections of their own, and no containers, cost a server (AGENTS=100,500).
	@$(GO) run ./test/scale -agents $(AGENTS)

RUNS ?= 3

.PHONY: bench-servers
bench-servers: build ## Compare one server with three, in turn (NODES=1000 RUNS=3).
	@$(GO) run ./test/scale -several -nodes $(NODES) -runs $(RUNS)

.PHONY: bench-restore
bench-restore: build ## Save a control plane, lose it and restore it, and say how long that took (NODES=1000).
	@$(GO) run ./test/scale -restore -nodes $(NODES) -daemonsets 2

.PHONY: bench-dashboard
bench-dashboard: build ## Open the dashboard of simulated nodes in Chromium, and say how fast it is (NODES=50000).
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" bash -o pipefail -c "$(GO) test -trimpath -count 1 -timeout 40m -v -run '^TestAFleetThatChanges$$' ./test/browser -nodes $(NODES) | grep -E '^ok|FAIL|fleet_test|page_test'"

.PHONY: bench-policy
bench-policy: build ## Compare rollouts without a policy, under one that asks for no pauses, and with content, in turn (NODES=1000,5000 RUNS=3).
	@$(GO) run ./test/scale -policy -nodes $(NODES) -runs $(RUNS)

.PHONY: bench-content
bench-content: build ## Edit a ConfigMap that is content to what does not work, on simulated nodes, and say what it reached (NODES=5000).
	@$(GO) run ./test/scale -content -nodes $(NODES)

KILLS ?= 4

.PHONY: bench-startup
bench-startup: build ## Have nodes join that open when their daemons are ready, while pods wait and the server is killed, and judge it (NODES=10000 KILLS=4 SEED=1).
	@$(GO) run ./test/scale -startup -nodes $(if $(filter file,$(origin NODES)),500,$(NODES)) -kills $(KILLS) -seed $(SEED)

SEED   ?= 1
ROUNDS ?= 20
JOBS   ?= 2
# mixed: every other round has RolloutPolicies; all or none of them otherwise.
POLICIES ?= mixed
# mixed: half of the rounds have DaemonSetVariants, by their seed; all or none of them otherwise.
VARIANTS ?= mixed

.PHONY: chaos
chaos: build ## Play rounds of faults, each from its seed, and judge them (SEED=1 ROUNDS=200 POLICIES=all TROUBLE=content).
	@$(GO) run ./test/chaos -seed $(SEED) -rounds $(ROUNDS) -jobs $(JOBS) -policies $(POLICIES) -variants $(VARIANTS) -trouble '$(TROUBLE)'

.PHONY: chaos-servers
chaos-servers: build ## Kill, stop and cut off three servers, fill their disks, and compare what each has (SEED=1 ROUNDS=20); needs root.
	@$(GO) run ./test/chaos/several -seed $(SEED) -rounds $(ROUNDS)

# Debian's kernel, kept for all clones.
EMULATED_KERNEL ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode/emulated-kernel

.PHONY: chaos-machines
chaos-machines: build ## Three servers in emulated machines, whose clocks jump and whose disks are slow (SEED=1 ROUNDS=3); needs QEMU, no root.
	@if command -v qemu-system-x86_64 >/dev/null; then hack/emulated-kernel.sh '$(EMULATED_KERNEL)'; fi
	@$(GO) run ./test/chaos/several -machines -kernel '$(EMULATED_KERNEL)' -length 150s -seed $(SEED) -rounds $(if $(filter 20,$(ROUNDS)),3,$(ROUNDS))

# Or bookworm.
DEBIAN ?= trixie

.PHONY: vm
vm: build ## A node on a real machine under emulation: systemd, reboots, power cuts, newer containerd (DEBIAN=bookworm); needs root, and QEMU and debootstrap: apt-get install --no-install-recommends qemu-system-x86 debootstrap.
	@hack/test-vm.sh '$(DEBIAN)'

# The newest Kubernetes whose module can be had. Its programs are kept, for all clones.
FOREIGN          ?= v1.36.3
FOREIGN_PROGRAMS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode/kubernetes-$(FOREIGN)

.PHONY: foreign
foreign: deps build ## Prove on a real kube-apiserver what is said to work on any Kubernetes; the first run builds it.
	@hack/foreign-kubernetes.sh '$(FOREIGN)' '$(FOREIGN_PROGRAMS)'
	@hack/helm.sh v4
	@hack/helm.sh v3
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 60m -v ./test/foreign -kubernetes '$(FOREIGN_PROGRAMS)'

.PHONY: bench-beside
bench-beside: deps build ## Compare changes by Kubernetes alone with those by a policy beside it, in turn (NODES=2000 RUNS=3); the first run builds Kubernetes.
	@hack/foreign-kubernetes.sh '$(FOREIGN)' '$(FOREIGN_PROGRAMS)'
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 60m -v -run TestComparedWithKubernetesAlone ./test/foreign -kubernetes '$(FOREIGN_PROGRAMS)' -compared '$(if $(filter file,$(origin NODES)),2000,$(NODES))' -turns $(RUNS)

# The oldest Kubernetes that Everynode runs beside, in its last version.
OLDEST          ?= v1.33.13
OLDEST_PROGRAMS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode/kubernetes-$(OLDEST)

.PHONY: foreign-oldest
foreign-oldest: deps build ## Prove on the oldest Kubernetes what is said to work beside its controllers; the first run builds it.
	@hack/foreign-kubernetes.sh '$(OLDEST)' '$(OLDEST_PROGRAMS)'
	@hack/helm.sh v4
	@hack/helm.sh v3
	@EVERYNODE_BINARY="$(CURDIR)/bin/everynode" $(GO) test -trimpath -count 1 -timeout 60m -v -run 'Beside|Leaving|Away|Chart|Page|OnAnother' -skip 'RealNodes|OfMany' ./test/foreign -kubernetes '$(OLDEST_PROGRAMS)'

.PHONY: package
package: build ## Make a Debian package and an .rpm of bin/everynode in bin/.
	@hack/package.sh $(VERSION) bin deb
	@hack/package.sh $(VERSION) bin rpm

.PHONY: image
image: build ## Make an image of bin/everynode, as an archive in bin/.
	@$(GO) run -trimpath ./packaging/image -version $(VERSION) -o bin/everynode-image.tar $(shell go env GOARCH)=bin/everynode
	@echo bin/everynode-image.tar

.PHONY: release
release: build ## Make all packages, images and lists of a release in bin/release (ARCHS="amd64 arm64").
	@LDFLAGS='$(LDFLAGS)' hack/release.sh $(VERSION)

.PHONY: emulated
emulated: images ## Run what is built for another architecture, with QEMU's emulation of its processors (ARCH=arm64, PROGRAM=FILE).
	@LDFLAGS='$(LDFLAGS)' hack/emulated-arch.sh $(or $(ARCH),arm64) $(PROGRAM)

# A path is taken from this folder.
ANSWERS ?= internal/apiserver/registry/answers/testdata/answers.jsonl.gz

.PHONY: answers
answers: ## Compare a server's answers with recorded ones of kube-apiserver; ANSWERS=FILE for others.
	@cd internal/apiserver/registry/answers && $(GO) test -trimpath -run '^TestAnswersOfAServer$$' -args -print -answers '$(abspath $(ANSWERS))'

.PHONY: fuzz
fuzz: images ## Run each fuzz test for FUZZTIME (10m) and print a table.
	@hack/fuzz.sh

.PHONY: bench-node
bench-node: build ## Measure one real node with 100 pods; needs root and containerd.
	@$(GO) run ./test/density

.PHONY: lint
lint: ## Check style, also what needs types; make test checks the rest.
	@CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath" go tool -modfile=tools/go.mod golangci-lint run

.PHONY: generate
generate: ## Regenerate the OpenAPI definitions, and the copying functions of our own kinds.
	@hack/generate-openapi.sh
	@go tool -modfile=tools/deepcopy.mod deepcopy-gen --output-file zz_generated.deepcopy.go --go-header-file /dev/null ./api/v1alpha1

.PHONY: presubmit
presubmit: generate lint test-all ## Everything that a change must pass.
	@git diff --exit-code -- '*zz_generated*'
