package stolen

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	file  = flag.String("answers", "testdata/answers.jsonl.gz", "the recorded answers")
	print = flag.Bool("print", false, "fail over the known differences too")
)

// answer is what kube-apiserver made of a case: "WHO | METHOD PATH | what it is about".
type answer struct {
	Case    string
	Code    int
	Message string
}

func load(t *testing.T) (out []answer) {
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

// chance is what differs from server to server.
var chance = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`yard-(node1|ghost|boot|sa|anon)-\d+`), "yard-csr"},
}

func plain(text string) string {
	for _, c := range chance {
		text = c.pattern.ReplaceAllString(text, c.instead)
	}
	return strings.TrimSpace(text)
}

// elsewhere are the cases that are no single request; other tests tell them.
var elsewhere = []string{"outcome of csr: ", "podCIDR stays: ", "adoption"}

// known are the cases that differ, and why. None of them lets anybody do more than
// kube-apiserver does, but for those about nodes and endpoint slices, which say why.
var known = map[string]string{
	"ghost | POST /api/v1/nodes | create self: podCIDR all":                                                    "stricter: nodes make routes of the pod networks of others, so no node sets its own",
	"ghost | POST /api/v1/nodes | create self: podCIDR nonsense":                                               "stricter, as above",
	"node1 | PATCH /api/v1/nodes/yard-1 | patch podCIDRs of one family":                                        "stricter, as above",
	"ghost | POST /api/v1/nodes | create self: finalizer":                                                      "stricter: a node that is revoked must go, so nodes add no finalizers",
	"node1 | POST /api/v1/namespaces/yard-a/pods | create mirror: finalizer":                                   "stricter, as above",
	"node1 | GET /apis/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=1 | matrix all":               "a node is its service proxy and name server; in Kubernetes it gets the same with the tokens of those two daemons",
	"node1 | GET /apis/discovery.k8s.io/v1/namespaces/yard-a/endpointslices?watch=1&timeoutSeconds=1 | matrix": "as above",
	"node1 | GET /api/v1/namespaces/yard-a/secrets/sec-unbound | relation after the binding":                   "a story: TestWhatAPodUsesOpensAndClosesWithIt tells it",
	"node1 | POST /api/v1/namespaces/yard-a/events | events 1 MiB annotation":                                  "the text names an internal version, which there is not here",
	"node1 | POST /api/v1/namespaces/yard-a/events | events wrong kind":                                        "as above",
	"node1 | POST /api/v1/namespaces/yard-a/events?fieldValidation=Strict | events strict unknown field":       "as above",
	"node1 | POST /api/v1/namespaces/yard-a/events | events null":                                              "a second message, that it has no name",
	"sa | GET /openid/v1/jwks | path":                                                                          "the keys come whatever form is asked for; it is no secret",
}

func TestRecordedAnswers(t *testing.T) {
	y := newYard(t)
	type difference struct{ got, want answer }
	var mu sync.Mutex
	var found []difference
	var calls []func()
	for _, a := range load(t) {
		r, who, ok := y.requestOf(t, a.Case)
		if !ok {
			_, story, _ := strings.Cut(a.Case, " | ")
			if !slices.ContainsFunc(elsewhere, func(s string) bool { return strings.HasPrefix(story, s) }) {
				t.Errorf("nobody knows how to ask %q", a.Case)
			}
			continue
		}
		calls = append(calls, func() {
			code, body, err := y.send(t.Context(), y.thieves[who], r)
			got := answer{a.Case, code, plain(messageOf(body))}
			if err != nil {
				got.Message = err.Error()
			}
			if code == a.Code && (code < 400 || got.Message == plain(a.Message)) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, difference{got, a})
		})
	}
	together(calls)
	for _, d := range found {
		if known[d.got.Case] == "" || *print {
			t.Errorf("%s\n  recorded %d %s\n  got      %d %.500s", d.got.Case, d.want.Code, plain(d.want.Message), d.got.Code, d.got.Message)
		}
	}
	if len(calls) < 2000 {
		t.Errorf("only %d requests were made", len(calls))
	}
	t.Logf("%d of %d answers differ; %d were known to", len(found), len(calls), len(known))
}

// together makes calls, several at a time: many of them watch for a second.
func together(calls []func()) {
	var all sync.WaitGroup
	next := make(chan func())
	for range 64 {
		all.Go(func() {
			for call := range next {
				call()
			}
		})
	}
	for _, call := range calls {
		next <- call
	}
	close(next)
	all.Wait()
}

func messageOf(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return status.Message
	}
	return string(body)
}
