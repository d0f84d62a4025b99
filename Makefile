# Targets for people and for CI; each is short. `make help` prints them.
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo devel)
GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GO_BUILD = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 60s

help: ## print this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: ## build bin/peerdns, a static binary
	$(GO_BUILD) -o bin/peerdns ./cmd/peerdns

run: build ## serve deploy/examples/ on 127.0.0.1:5300
	@echo 'Try, from another terminal:'
	@echo '  dig @127.0.0.1 -p 5300 web.shop.svc.cluster.local.'
	@echo '  dig @127.0.0.1 -p 5300 _http._tcp.web.shop.svc.cluster.local. SRV'
	@echo '  dig @127.0.0.1 -p 5300 192-0-2-10.shop.pod.cluster.local. +short'
	@echo '  dig @127.0.0.1 -p 5300 web-2.web.shop.svc.cluster.local.'
	@bin/peerdns --manifests=deploy/examples --zone=cluster.local --answer-order=sorted --listen=127.0.0.1:5300 --admin-listen=127.0.0.1:5380

test: race integration ## everything that can be tested here

race: ## the tests of the root module, with the race detector
	go test -race ./...

integration: ## the tests with real parts: API server, dig, Erlang (the first build takes minutes)
	cd integration && go test -count=1 -p=1 -timeout=60m ./...

lint: ## the linters, the dependency direction among them
	$(GOLANGCI_LINT) run ./...
	cd integration && $(GOLANGCI_LINT) run --config=../.golangci.yml ./...

fuzz: ## every fuzz target for FUZZTIME
	@for at in $$(grep -rHoE '^func Fuzz[A-Za-z]+' --include='*_test.go' zone watcher resolver | tr -d ' '); do \
		go test -run='^$$' -fuzz="^$${at##*func}\$$" -fuzztime=$(FUZZTIME) ./$$(dirname $${at%%:*}) || exit 1; done

bench: ## the micro-benchmarks, for benchstat
	go test -run='^$$' -bench=. -benchmem -count=6 ./...

golden: ## rewrite the golden files; then read the difference
	go test ./watcher ./cmd/peerdns -update

image: ## build the container image
	docker build --build-arg VERSION=$(VERSION) -t peerdns:$(VERSION) .

clean: ## remove what was built
	rm -rf bin integration/.bin

.PHONY: help build run test race integration lint fuzz bench golden image clean
