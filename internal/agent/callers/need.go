package callers

import (
	"net/http"
	"strings"
)

// verbs are the API's words for methods.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// wide is the right to everything that a node answers.
const wide = "proxy"

// narrow are the rights that are enough for a path and all below it.
var narrow = []struct {
	path, subresource string
	// orWide says that the right to everything is enough, too.
	orWide bool
}{
	{"/stats", "stats", false},
	{"/metrics", "metrics", false},
	{"/logs", "log", false},
	{"/pods", "pods", true},
	{"/healthz", "healthz", true},
	{"/configz", "configz", true},
	{"/images", "images", true},
}

// need says with which verb, and on which subresources of the node, of which one is enough, a request must be allowed.
func need(method, path string) (verb string, subresources []string) {
	verb = verbs[method]
	for _, n := range narrow {
		if path == n.path || strings.HasPrefix(path, n.path+"/") {
			if n.orWide {
				return verb, []string{n.subresource, wide}
			}
			return verb, []string{n.subresource}
		}
	}
	return verb, []string{wide}
}
