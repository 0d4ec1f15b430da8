package fetch

import (
	"slices"
	"strings"
)

// signs are words of runtimes and registries by which the reason of a failed pull is known: the first that fits
// counts. Full disks come first, since what a registry could not be asked for tells nothing of it then.
var signs = []struct {
	reason Reason
	words  []string
}{
	{NoSpace, []string{"no space left on device", "disk quota exceeded", "not enough space"}},
	{Unauthorized, []string{
		"401 unauthorized", "403 forbidden", "authorization failed", "pull access denied", "unauthorized:",
		"insufficient_scope", "no basic auth credentials", "authentication required", "denied: ",
	}},
	{Unreachable, []string{
		"dial tcp", "connection refused", "connection reset", "no route to host", "network is unreachable",
		"no such host", "server misbehaving", "i/o timeout", "tls handshake", "deadline exceeded", "unexpected eof",
		"certificate", "toomanyrequests", "429 too many", "500 internal server error", "502 bad gateway",
		"503 service unavailable", "504 gateway time",
	}},
	{NotFound, []string{
		"not found", "manifest unknown", "name unknown", "no match for platform", "does not exist", "not present",
		"invalid reference format", "couldn't parse image name", "do not exist",
	}},
}

// Classify finds the reason of a failed pull in what a runtime says of it. What nobody knows is the revision's fault:
// the node's daemon stays, and the limit of failures decides.
func Classify(said string) Reason {
	said = unnamed(strings.ToLower(said))
	for _, s := range signs {
		for _, words := range s.words {
			if strings.Contains(said, words) {
				return s.reason
			}
		}
	}
	return PullFailed
}

// unnamed leaves out the names of images, files and addresses, which may hold any of the words: what is quoted, and
// what has a slash.
func unnamed(said string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(said), func(word string) bool {
		word = strings.TrimRight(word, ":,.;)")
		quoted := len(word) > 1 && strings.Trim(word, "\"'`") != word
		return quoted && word[0] == word[len(word)-1] || strings.Contains(word, "/") && word != "i/o"
	}), " ")
}
