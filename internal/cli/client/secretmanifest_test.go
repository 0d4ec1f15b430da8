package client

import (
	"strings"
	"testing"
)

// What is wrong with a document that may be a Secret is told without what it says.
func TestErrorsOfManifestsTellNoSecret(t *testing.T) {
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\n"
	for _, text := range []string{
		head + "stringData: {password: *hunter2}",
		head + "stringData: {password: &hunter2 [}",
		head + "stringData:\n  password: hunter2: hunter2",
		head + "data: hunter2",
		head + "metadata: hunter2",
		"kind: secret\nstringData: {password: *hunter2}",
		"metadata: {name: token}\nstringData: {password: *hunter2}",
		strings.ReplaceAll(head, "{name: token}", "hunter2"),
	} {
		_, err := parseManifests(strings.NewReader(text))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "document 1: ") {
			t.Errorf("%q: the error is %v", text, err)
		}
	}
	// Of all else people are told what is wrong.
	_, err := parseManifests(strings.NewReader("kind: ConfigMap\nmetadata: {name: c}\ndata: {a: *b}"))
	if err == nil || !strings.Contains(err.Error(), "unknown anchor 'b' referenced") {
		t.Errorf("of a ConfigMap the error is %v", err)
	}
}
