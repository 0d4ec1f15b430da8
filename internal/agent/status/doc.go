// Package status reports the status of a node's pods to the API, and deletes the API objects of those that are gone.
//
// Set never waits: it keeps the newest status of each pod, and a few workers write it. A pod whose status changes
// faster than it can be written skips what lies between. What cannot be written is tried again until it is
// written, replaced, or the pod is no longer there.
package status
