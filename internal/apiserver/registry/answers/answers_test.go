package answers_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/testenv"
)

var (
	file  = flag.String("answers", "testdata/answers.jsonl.gz", "the recorded answers")
	only  = flag.String("resource", "", "compare the answers about this resource only")
	shown = flag.Int("shown", 5, "how many differences per resource to print")
	print = flag.Bool("print", false, "print a table of how many answers are the same")
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

// answerer answers a recorded request again.
type answerer func(t *testing.T, recorded answer) answer

// TestAnswers compares what the API kinds make of a request with what
// kube-apiserver made of it: the code, the object as stored, or the errors,
// their fields, order and texts.
func TestAnswers(t *testing.T) {
	compare(t, newServer(t).post, nil)
}

// TestAnswersOfAServer asks a whole server, over HTTPS, in dry runs.
func TestAnswersOfAServer(t *testing.T) {
	if *print {
		withoutLogs(t)
	}
	compare(t, overHTTP(testenv.Start(t)), map[string]string{
		`pods:spec.serviceAccountName="../x"`: "the recorded server had no admission that looks for the account",
		`pods:spec.serviceAccountName=DELETE`: "the recorded server had no admission that names the default account",
		`services:spec.ports.0.nodePort=-1`:   "the recorded server allocates no port in a dry run, so it finds none out of range; the same request without dryRun is refused",
	})
}

// withoutLogs leaves the output to the table.
func withoutLogs(t *testing.T) {
	t.Helper()
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(io.Discard)
}

// compare prints differences and fails, but for the cases whose reason is known.
func compare(t *testing.T, post answerer, known map[string]string) {
	byResource := map[string][]answer{}
	for _, a := range load(t) {
		if *only == "" || *only == a.resource() {
			byResource[a.resource()] = append(byResource[a.resource()], a)
		}
	}
	var table counts
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		t.Run(name, func(t *testing.T) {
			c := count{resource: name}
			for _, a := range byResource[name] {
				got := post(t, a)
				diff := difference(a, got)
				c.add(got.Code == a.Code, diff == "")
				if why, ok := known[a.Case]; ok && diff != "" {
					t.Logf("%s differs: %s", a.Case, why)
				} else if diff != "" && c.cases-c.whole <= *shown {
					t.Errorf("%s: recorded (-), got (+):\n%s", a.Case, diff)
				}
			}
			table = append(table, c)
		})
	}
	if *print {
		fmt.Print(table)
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
		return strings.Contains(w, deprecated)
	})
	for i, w := range warnings {
		warnings[i] = warningText(w)
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

// warningText is what a Warning header says, without code and quotes.
func warningText(header string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(header, `299 - "`), `"`), `\"`, `"`)
}

// deprecated is the warning that a server adds to each answer about the kind,
// whatever the object; the kinds themselves know nothing of it.
const deprecated = "v1 Endpoints is deprecated"

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
