// Package nodestatus makes a machine a Node and says how it is.
//
// It registers the Node, renews the node's lease every ten seconds, and keeps the Node's status true: addresses,
// capacity, what the machine is, and the conditions Ready, MemoryPressure, DiskPressure and PIDPressure. The status is
// looked at every ten seconds, and every second while the container runtime isn't ready; it is written when something
// has changed, and every five minutes anyway.
//
// machine.go reads the facts, build.go (pure) makes a status of them, register.go and run.go write. A Node that
// somebody deletes stays deleted until the agent starts again.
package nodestatus
