// Package zone decides what the names of a cluster mean: it answers a DNS
// question from Services, EndpointSlices and Namespaces, by the rules of
// Kubernetes' DNS-based service discovery, version 1.1.0.
//
//	SERVICE.NAMESPACE.svc.DOMAIN               A: the cluster address, or every ready endpoint of a headless Service;
//	                                           without one, such a name does not exist
//	                                           CNAME: an external name; SRV: every port
//	HOST.SERVICE.NAMESPACE.svc.DOMAIN          A: one endpoint, by its host name or its address with dashes
//	_PORT._PROTOCOL.SERVICE.NAMESPACE.svc...   SRV: a named port
//	1-2-3-4.NAMESPACE.pod.DOMAIN               A: the address in the name; nobody checks that there is such a pod
//	4.3.2.1.in-addr.arpa                       PTR: the Service with that address, or the endpoint with a host name
//	dns-version.DOMAIN, ns.dns.DOMAIN          TXT: version of the rules; A: the name server itself
//
// It is pure: objects come from a Source, and nothing is kept.
package zone
