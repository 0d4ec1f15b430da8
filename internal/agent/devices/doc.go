// Package devices is the node's side of device plugins: programs, most often daemons, that offer a resource such as
// example.com/gpu.
//
//	plugin ──Register──► kubelet.sock (register.go) ──► connect ──ListAndWatch──► ledger ──Totals──► node status
//	pod is admitted ──► Admit ──► ledger.Choose ──GetPreferredAllocation, Allocate──► plugin        │
//	container starts ──► Container ──PreStartContainer──► plugin; answers as mounts, devices, …      ▼
//	pod ended ──► Free                                                                         checkpoint on disk
//
// What may be given to whom is decided by package ledger. What was given is on disk before a pod is admitted, so that
// an agent that starts again gives no device twice. A checkpoint that cannot be read stays where it is: until somebody
// takes it away, no device plugin is accepted, because nobody knows what running pods have.
//
// Without a plugin there is one listening socket, and no connection.
package devices
