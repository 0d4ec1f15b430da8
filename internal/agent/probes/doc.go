// Package probes runs the startup, liveness and readiness probes of containers and says what follows from them.
//
// tally.go (pure) counts outcomes against thresholds. worker.go runs one probe of one container, in one goroutine: at
// first when the initial delay is over, then every period. A container with a startup probe starts its other probes
// when that one has succeeded. After a liveness or startup probe has failed for good, nothing is probed until the
// container's next life. check*.go do a single check by HTTP, TCP, gRPC or a command.
//
// Messages are the kubelet's, because people and tools look for them: Readiness probe failed: HTTP probe failed with
// statuscode: 500.
package probes
