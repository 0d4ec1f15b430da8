// Package backends asks the API servers behind APIServices, which are of others, what
// they have, and keeps it: whether they answer, what kinds there are, and the documents
// of OpenAPI. The library's aggregator would ask them itself, and read what they send
// without an end, hold locks while it waits, and have all wait for the slowest; here
// each is asked by itself, its answers are read up to a limit, and the library's parts
// that merge documents find them in memory.
//
//	keeper.go       which servers there are; the start and the end of asking one
//	minder.go       asks one server, again and again
//	condition.go    decides whether a server is available, and what its status says
//	fetch.go        one question to one server, within its limits
//	limits.go       how large documents may be, each and all together
//	documents.go    what one server has said, for those who merge it
//	openapi.go      the documents of OpenAPI of all servers
//	metrics.go      how many servers do not answer
package backends
