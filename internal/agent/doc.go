// Package agent is the composition root of a node: it joins the cluster, watches the pods that are bound to the node, and
// runs them on a container runtime.
//
//	API (pods of this node) ─► pods.go ─► one worker per pod (worker.go) ─► podworker.Decide ─► perform.go ─► cri, images,
//	runtime (cri.Watch)     ─►   │                     ▲                                                      volumes, hooks
//	probes                  ─►   └─ admit.go           └── outcomes ◄─────────────────────────────────────────────┘
//	                                                   └── podworker.Status ─► status ─► API
//
// Decisions are podworker's. A worker is one goroutine that owns its pod's memory; what takes time runs beside it and
// reports back. Nothing is kept on disk: a worker that starts reads from the runtime what runs already.
package agent
