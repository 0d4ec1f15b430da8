// Package resizing decides how a running pod is given other amounts of cpu and memory, and reads how far that has come.
//
// A pod says by its variant.Mark which amounts it was made with. Where another pod would differ by such amounts alone,
// and Kubernetes' pods/resize can express that, a Way says what to ask for; else it says why the pod is to be
// replaced. What was asked for stands on the pod, as a Record; what became of it, in its status. So nothing is kept in
// memory.
//
// It has no clock and no client.
package resizing
