package main

import _ "embed" // what is applied

var (
	//go:embed testdata/live.yaml
	liveDaemon string
	//go:embed testdata/agent.yaml
	agentManifest string
	// sized is a daemon of which a variant asks for more memory on two nodes, beside a NodeStartup whose daemon is
	// missing.
	//go:embed testdata/sized.yaml
	sized string
	// gate is what nodes wait for that start.
	//go:embed testdata/gate.yaml
	gate string
	//go:embed testdata/daemon.yaml
	daemon string
	//go:embed testdata/variants.yaml
	variantsManifest string
	//go:embed testdata/varied.yaml
	variedManifest string
)
