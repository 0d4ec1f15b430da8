// Package proxy makes Services lead to their endpoints on one node: it follows the
// Services, the EndpointSlices and the node itself, and keeps the node's packet
// filter so that traffic to a Service goes to one of its endpoints.
//
//	informers ── note ──> changes (pure) ── Services that changed ──> ruleset (pure)
//	                                              what changes of the rules ──> nftables (applies)
//
// A change becomes one transaction of only what it touches. All rules are written at
// the start, after an error, and when somebody else emptied the packet filter. What
// was applied stays when the process ends: Services work on while an agent restarts.
package proxy
