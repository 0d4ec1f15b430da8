// Package metricsapi serves metrics.k8s.io, behind `kubectl top`: what nodes and pods use now.
//
// Nothing is stored. A request asks the agents of the nodes that it is about, at that moment and all together; a node
// that does not answer in time is left out, and so are simulated nodes, which have no agent. The group is served beside
// the kinds of the registry, because it has neither storage nor strategy; authentication, authorization and flow
// control are those of every request.
//
//	handler.go    paths, selectors, discovery
//	collect.go    asks agents
//	answer.go     turns what they say into the API's objects; pure
package metricsapi
