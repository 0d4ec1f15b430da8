// Package hostile throws hostile input at the API server and at the whole
// control plane: objects, patches and queries that a fuzzer changed, and bodies
// that are no objects at all.
//
// What must hold, whatever comes in: nothing panics, also where a panic would be
// recovered; no answer is an internal error; each answer is the object or a
// Status that says why not; what was stored can be read in every form, written
// back unchanged and deleted; and nothing that was stored keeps a control loop
// from its other work.
//
// The seeds run with the other tests. `make fuzz` runs the fuzzer itself.
package hostile
