// Package agent is the composition root of a node: it joins the cluster, watches the pods that are bound to the node,
// and runs them on a container runtime. Package pods does the work; what is here makes the parts and hands each what it
// needs.
package agent
