package callers

import (
	"net/http"
	"slices"
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

// commands are the paths that run something in a container or reach into it. WebSockets open them by GET.
var commands = []string{"/exec", "/attach", "/portForward"}

// need says with which verb, and on which subresources of the node, of which one is enough, a request must be allowed.
// What runs a command needs the right to create by any method, as pods/exec does: reading must not be enough.
func need(method, path string) (verb string, subresources []string) {
	if slices.ContainsFunc(commands, func(root string) bool { return isBelow(path, root) }) {
		return verbs[http.MethodPost], []string{wide}
	}
	verb = verbs[method]
	for _, n := range narrow {
		if isBelow(path, n.path) {
			if n.orWide {
				return verb, []string{n.subresource, wide}
			}
			return verb, []string{n.subresource}
		}
	}
	return verb, []string{wide}
}

// isBelow reports whether path is root or below it.
func isBelow(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}
