// Package extensions lets users add kinds to the API: by CustomResourceDefinitions,
// whose objects this server stores, and by APIServices, which lead to servers of
// their own. Both are the libraries of Kubernetes, put into the chain of this
// process: a request comes to the aggregator, which hands what it does not know on to
// our own kinds, and those hand on to the custom ones.
//
//	customresources.go  the server of CustomResourceDefinitions and their objects
//	aggregator.go       the server in front, and its way to servers of others
//	registration.go     an APIService for each group and version that this process serves
//	groups.go           the list of all API groups
//	openapi.go          what is told of the kinds of both
//
// Authentication, authorization, flow control, audit and admission are those of the
// whole server; they come before, and know nothing of who serves what.
package extensions
