package answers_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	file  = flag.String("answers", "testdata/answers.jsonl.gz", "the recorded answers")
	only  = flag.String("resource", "", "compare the answers about this resource only")
	shown = flag.Int("shown", 5, "how many differences per resource to print")
)

// answer is a recorded request, a POST to path, and what came back.
type answer struct {
	Case     string
	Path     string
	Request  json.RawMessage
	Code     int
	Object   map[string]any
	Reason   string
	Message  string
	Causes   [][3]string
	Warnings []string
}

func (a answer) resource() string { return a.Path[strings.LastIndex(a.Path, "/")+1:] }

// namespace is empty for kinds that live in none.
func (a answer) namespace() string {
	parts := strings.Split(a.Path, "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && i+2 < len(parts) {
		return parts[i+1]
	}
	return ""
}

func load(t *testing.T) []answer {
	t.Helper()
	f, err := os.Open(*file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []answer
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAnswers compares what the API kinds make of a request with what
// kube-apiserver made of it: the code, the object as stored, or the errors,
// their fields, order and texts.
func TestAnswers(t *testing.T) {
	server := newServer(t)
	byResource := map[string][]answer{}
	for _, a := range load(t) {
		if *only == "" || *only == a.resource() {
			byResource[a.resource()] = append(byResource[a.resource()], a)
		}
	}
	for name, answers := range byResource {
		t.Run(name, func(t *testing.T) {
			codes, different := 0, 0
			for _, a := range answers {
				got := server.post(t, a)
				if got.Code == a.Code {
					codes++
				}
				diff := difference(a, got)
				if diff == "" {
					continue
				}
				if different++; different <= *shown {
					t.Errorf("%s: recorded (-), got (+):\n%s", a.Case, diff)
				}
			}
			t.Logf("%d answers, %d with the same code, %d the same in all", len(answers), codes, len(answers)-different)
		})
	}
}

// difference is empty if the answers agree.
func difference(want, got answer) string {
	type comparable struct {
		Code     int
		Object   map[string]any
		Reason   string
		Message  string
		Causes   [][3]string
		Warnings []string
	}
	warnings := slices.DeleteFunc(slices.Clone(want.Warnings), func(w string) bool {
		// The server itself adds this one, whatever the object.
		return strings.Contains(w, "v1 Endpoints is deprecated")
	})
	for i, w := range warnings {
		warnings[i] = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(w, `299 - "`), `"`), `\"`, `"`)
	}
	if len(warnings) == 0 {
		warnings = nil
	}
	if len(want.Causes) == 0 {
		want.Causes = nil
	}
	w := comparable{want.Code, normal(want.Object), want.Reason, want.Message, want.Causes, warnings}
	g := comparable{got.Code, normal(got.Object), got.Reason, got.Message, got.Causes, got.Warnings}
	return cmp.Diff(w, g)
}

// normal removes what the recording left out or chance decides.
func normal(obj map[string]any) map[string]any {
	if obj == nil {
		return nil
	}
	if m, ok := obj["metadata"].(map[string]any); ok {
		for _, key := range []string{"uid", "creationTimestamp", "managedFields", "resourceVersion", "selfLink"} {
			delete(m, key)
		}
	}
	if spec, ok := obj["spec"].(map[string]any); ok && obj["kind"] == "Service" {
		for _, key := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
			delete(spec, key)
		}
		ports, _ := spec["ports"].([]any)
		for _, p := range ports {
			delete(p.(map[string]any), "nodePort")
		}
	}
	return obj
}
