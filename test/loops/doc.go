// Package loops tests control loops, and what else needs a whole control plane, against one: what happens, what must
// not happen, and a restart in the middle. All of them are one test binary, since linking a control plane takes long,
// and that one runs under the race detector. What a loop decides is tested beside its code, without a server.
package loops
