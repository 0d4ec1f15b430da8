// Package referred keeps the ConfigMaps and Secrets that the pods of a node refer to.
//
// Each is watched by itself, as the node may see no other, for as long as a pod refers to it. So a change is known when
// it happens, nothing is read again and again, and a container that crashes starts again while the API server is away.
// What was not seen yet is read live, or taken from what an earlier run of the agent knew.
//
// references lists what a pod refers to, and is pure.
package referred
