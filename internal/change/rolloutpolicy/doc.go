// Package rolloutpolicy reads RolloutPolicies: what a policy must look like, when
// its windows are open, and which step each node belongs to. It is pure: the time
// and the time zones are arguments.
//
// Validate has the rules that a CustomResourceDefinition can express as well, so
// that the API takes and refuses the same with and without Everynode's own server.
// What it cannot express, such as a time zone that does not exist, Compile refuses;
// the controller says it in a condition.
//
// # Steps
//
// A policy's waves, in their order, make the steps of a rollout: one for each wave,
// but one for each value of the label for a wave with each, and the last, "rest",
// for the nodes that no wave takes. A Fleet keeps the steps of its nodes while nodes
// come, go and change; a node's arrival moves few others. Waves with count or
// percent take the nodes with the lowest hash of wave and name: the same fleet has
// the same canaries, in every process.
//
// fleet.go gives each node its step, and sieve.go has the nodes of waves with count or percent. choose.go is about
// DaemonSets: which policy counts for one.
package rolloutpolicy
