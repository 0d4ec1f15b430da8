// Package callers decides who may ask a node's agent for what, as a kubelet does.
//
// The API server is known by its certificate and may do everything. Everybody else shows a client certificate of the
// cluster's CA, or a bearer token that the API server says is good (TokenReview), and then needs the right to what is
// asked for: a subresource of the Node such as nodes/metrics (SubjectAccessReview). Answers are remembered for a while,
// so that whoever scrapes a node every few seconds costs the API server next to nothing, and goes on getting answers
// while it is away for a moment.
//
// need says which right a request takes, and is pure; Guard asks.
package callers
