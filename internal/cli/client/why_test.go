package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/change/why"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv"
)

// writes notes the requests that are no reads.
type writes struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "All" {
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
	}
	return w.next.RoundTrip(r)
}

// watched is a connection to the test's control plane, with what it writes.
func watched(t *testing.T, env *testenv.Env, namespace string) (*lists, *writes) {
	t.Helper()
	w := &writes{}
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
	c, err := newLists(config, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

func newAgent(image string) *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: image}}},
			},
		},
	}
}

func TestWhy(t *testing.T) {
	plan, err := illness.Parse([]byte(`
labels: [{key: rack, values: [r1, r2]}]
faults:
- {name: bad, pods: {image: "agent:bad"}, nodes: {matchLabels: {rack: r1}}, crash: {exitCode: 3, message: "no configuration\e[2J\rE1122 forged"}}
- {name: small, nodes: {matchLabels: {kubernetes.io/hostname: sim-0002}}, notReady: {message: no network}}`))
	if err != nil {
		t.Fatal(err)
	}
	env := testenv.Start(t, testenv.SimulatedNodes(2), func(o *config.Options) { o.Faults = plan })
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), newAgent("agent:bad"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c, wrote := watched(t, env, "default")
	ask := func(args ...string) (string, error) {
		q, err := askedFor(args, "", "")
		if err != nil {
			return "", err
		}
		r, err := c.why(t.Context(), q)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = show(&out, r, "")
		return out.String(), err
	}
	says := func(what string, words ...string) func(context.Context) error {
		return func(context.Context) error {
			text, err := ask(strings.Fields(what)...)
			if strings.ContainsAny(text, "\x1b\r") {
				return fmt.Errorf("a pod's last words reach the terminal in %q", text)
			}
			for _, word := range words {
				if err == nil && !strings.Contains(strings.Join(strings.Fields(text), " "), word) {
					err = fmt.Errorf("it says\n%s\nwithout %q", text, word)
				}
			}
			return err
		}
	}
	env.Eventually("the crashing container is explained",
		says("sim-0001 daemonset/agent", "default/agent on sim-0001: FailedRevision",
			"ended with exit code 3", `last words "no configuration`, "Warning BackOff", "the log of container agent cannot be read"))
	env.Eventually("the node that is not ready is explained", says("sim-0002", "default/agent on sim-0002:",
		"the node is not ready: KubeletNotReady", "node says: no network"))
	env.Eventually("both are in the list", says("daemonset/agent", "default/agent:",
		"FailedRevision: its revision fails there sim-0001"))

	r, err := c.why(t.Context(), question{daemonSet: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var back why.SetReport
	if err := show(&out, r, "json"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.DaemonSet != "agent" || back.Nodes != 2 {
		t.Errorf("as JSON it is %s, %v", out.String(), err)
	}
	if len(wrote.seen) > 0 {
		t.Errorf("asking why wrote %v", wrote.seen)
	}
	for want, args := range map[string][]string{
		`there is no node "sim-0009"`:                          {"sim-0009"},
		`there is no DaemonSet "other" in namespace "default"`: {"daemonset/other"},
		`"pod/x" is neither a node nor a DaemonSet`:            {"pod/x"},
		`name one node, one DaemonSet`:                         {"a", "b"},
	} {
		if _, err := ask(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", args, err, want)
		}
	}
	c.namespace = "kube-system"
	if _, err := ask("daemonset/agent"); err == nil ||
		!strings.Contains(err.Error(), `but there is one in "default"; name it with -n`) {
		t.Errorf("in another namespace the error is %v", err)
	}
}

// hiding is a connection to an API that does not have our kinds.
type hiding struct{ next http.RoundTripper }

func (h hiding) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/apis/everynode.io/") {
		return h.next.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusNotFound, Status: "404 Not Found", Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader("404 page not found\n")), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// TestAnAPIWithoutOurKinds is planned for and explained all the same, and what is not there is said.
func TestAnAPIWithoutOurKinds(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), newAgent("agent:1"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return hiding{next} })
	c, err := newLists(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	const absent = "this cluster does not have RolloutPolicies, so every DaemonSet changes as in Kubernetes"
	for _, q := range []question{{daemonSet: "agent"}, {node: "sim-0001"}, {node: "sim-0001", daemonSet: "agent"}} {
		env.Eventually("it is said", func(ctx context.Context) error {
			r, err := c.why(ctx, q)
			if err != nil {
				return err
			}
			var out bytes.Buffer
			r.Write(&out, why.Style{})
			if text := strings.Join(strings.Fields(out.String()), " "); strings.Count(text, absent) != 1 ||
				!strings.Contains(text, "Current") {
				return fmt.Errorf("of %+v it says %s", q, text)
			}
			return nil
		})
	}
	p, err := c.plan(t.Context(), &manifests{daemonSets: []*appsv1.DaemonSet{newAgent("agent:2")}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Missing) != 1 || !strings.HasPrefix(p.Missing[0], absent) || !p.DaemonSets[0].Changes() {
		t.Errorf("the plan is missing %q, and is %+v", p.Missing, p.DaemonSets[0])
	}
}
