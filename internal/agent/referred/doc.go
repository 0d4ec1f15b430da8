// Package referred keeps the ConfigMaps and Secrets that the pods of a node refer to.
//
// Each is watched by itself, as the node may see no other, for as long as a pod refers to it. So a change is known when
// it happens, nothing is read again and again, and a container that crashes starts again while the API server is away.
// What was not seen yet is read live, or taken from what an earlier run of the agent knew.
//
// An object that was read as immutable stays so until the last pod that refers to it is gone, and is not watched:
// whoever deletes it, or puts another in its place, changes no pod that runs.
//
// references lists what a pod refers to, and is pure.
package referred
