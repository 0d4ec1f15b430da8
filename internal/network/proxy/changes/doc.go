// Package changes collects what Services, their EndpointSlices and the node itself
// say, and tells which Services now lead elsewhere, each as a whole.
//
// A Service is told with the endpoints that traffic may go to: those that are ready,
// or, when none is, those that still serve while they end; of these the ones that the
// slices' hints reserve for this node or zone; and separately the ones on this node,
// for policies of local traffic. What no packet filter rule depends on is left out.
//
// IPv4 only.
package changes
