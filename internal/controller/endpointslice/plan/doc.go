// Package plan decides what stands in Endpoints, the older way of saying where a
// Service leads, and which EndpointSlices mirror the Endpoints that a person wrote.
//
//	Endpoints  Service + pods + the object there is -> the object there should be
//	Mirror     hand-written Endpoints + slices there are -> slices to create, update, delete
//
// The EndpointSlices of Services with a selector are decided by k8s.io/endpointslice.
package plan
