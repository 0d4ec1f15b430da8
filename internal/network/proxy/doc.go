// Package proxy makes Services lead to their endpoints on one node: it follows the
// Services, the EndpointSlices and the node itself, and keeps the node's packet
// filter so that traffic to a Service goes to one of its endpoints.
//
//	informers ── note ──> changes (pure) ── Services that changed ──> ruleset (pure)
//	                                              what changes of the rules ──> nftables (applies)
//
// A change becomes one transaction of only what it touches. All rules are written at
// the start, after an error, and when somebody else emptied the packet filter. What
// was applied stays when the process ends: Services work on while an agent restarts,
// and nothing is changed before all that the API has is known. Where there are no
// rules, as after a start of the machine, what the node knew before serves until then,
// without its own pods, which ended.
package proxy
