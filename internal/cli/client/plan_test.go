package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/testenv"
)

const agentManifest = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, labels: {app: agent}}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "IMAGE"}]}
`

// refusing answers dry runs as a server does that does not allow them.
type refusing struct{ next http.RoundTripper }

func (r refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet {
		return r.next.RoundTrip(q)
	}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"daemonsets.apps is forbidden"}`
	return &http.Response{StatusCode: 403, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
}

func TestPlan(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(3))
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), newAgent("agent:1"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the first revision is everywhere", func(ctx context.Context) error {
		ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && ds.Status.NumberAvailable != 3 {
			err = fmt.Errorf("the status is %+v", ds.Status)
		}
		return err
	})
	l, wrote := watched(t, env, "default")
	ask := func(l *lists, manifest, output string) (string, error) {
		t.Helper()
		m, err := parseManifests(strings.NewReader(manifest))
		if err != nil {
			return "", err
		}
		p, err := l.plan(t.Context(), m)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = p.show(&out, output)
		return out.String(), err
	}
	same, other := strings.ReplaceAll(agentManifest, "IMAGE", "agent:1"), strings.ReplaceAll(agentManifest, "IMAGE",
		"agent:2")
	if text, err := ask(l, same, ""); err != nil ||
		!strings.Contains(text, "default/agent   revision 1: nothing changes") {
		t.Errorf("of what is there already it says %q, %v", text, err)
	}
	both := other + "---\n" + strings.ReplaceAll(other, "name: agent, labels",
		"name: second, labels") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: agent}\n"
	text, err := ask(l, both, "")
	if !errors.Is(err, changesFound) {
		t.Errorf("the exit code of a change is %v, want 2", err)
	}
	for _, want := range []string{
		"default/agent   revision 1 -> new", "containers[agent].image: agent:1 -> agent:2 (replaces every pod)", "3 nodes: 3 change\n",
		"default/second   is new", "3 nodes: 3 new\n", "Not planned: Service agent.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it says\n%s\nwithout %q", text, want)
		}
	}
	for output, want := range map[string]string{"json": `"daemonSet": "agent"`, "yaml": "daemonSet: agent"} {
		if text, err := ask(l, other, output); !errors.Is(err, changesFound) || !strings.Contains(text, want) {
			t.Errorf("as %s it is %s, %v", output, text, err)
		}
	}
	if _, err := ask(l, strings.ReplaceAll(other, "matchLabels: {app: agent}", "matchLabels: {app: x}"),
		""); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("what the server refuses gives %v", err)
	}

	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{next} })
	alone, err := newLists(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := ask(alone, same, ""); err != nil || !strings.Contains(text, "nothing changes") ||
		!strings.Contains(text, "(the server may not be asked to try") {
		t.Errorf("without the right to a dry run it says %q, %v", text, err)
	}
	if text, err := ask(alone, both, ""); !errors.Is(err, changesFound) ||
		!strings.Contains(text, "3 nodes: 3 change\n") || !strings.Contains(text, "3 nodes: 3 new\n") {
		t.Errorf("without the right to a dry run it says\n%s\n%v", text, err)
	}
	if _, err := ask(alone, strings.ReplaceAll(other, "image: ", "image: \"\", restartPolicy: "), ""); err == nil {
		t.Error("without the right to a dry run a bad manifest is no error")
	}

	if len(wrote.seen) > 0 {
		t.Errorf("planning wrote %v", wrote.seen)
	}
	ds, err := env.Client.AppsV1().DaemonSets("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(ds.Items) != 1 || ds.Items[0].Spec.Template.Spec.Containers[0].Image != "agent:1" {
		t.Errorf("after all plans there are %d DaemonSets, the first one %+v, %v", len(ds.Items),
			ds.Items[0].Spec.Template, err)
	}
	pods, err := env.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 3 || pods.Items[0].Status.Phase != corev1.PodRunning {
		t.Errorf("after all plans there are %d pods, %v", len(pods.Items), err)
	}
}

func TestManifests(t *testing.T) {
	for want, text := range map[string]string{
		`document 1: DaemonSet agent: unknown field "spec.replicas"`: strings.ReplaceAll(agentManifest,
			"spec:\n  selector", "spec:\n  replicas: 1\n  selector"),
		"document 2: DaemonSet agent: ":              agentManifest + "---\n" + strings.ReplaceAll(agentManifest, "containers: [", "containers: [3, "),
		"document 1: a DaemonSet has no name":        "apiVersion: apps/v1\nkind: DaemonSet\n",
		"document 1: RolloutPolicy p: unknown field": "apiVersion: everynode.io/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: p}\nspec: {wave: []}\n",
		"document 1: DaemonSetVariant v: spec.resources[c].requests[cpu]": "apiVersion: everynode.io/v1alpha1\nkind: DaemonSetVariant\n" +
			"metadata: {name: v}\nspec: {resources: {c: {requests: {cpu: 'much'}}}}\n",
		"document 1: yaml: ": "a: b: c\n",
	} {
		if _, err := parseManifests(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), strings.TrimSuffix(want, "\n")) &&
				!strings.Contains(err.Error(), "unknown field") || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error is %v, want one line with %q", err, want)
		}
	}
	m, err := parseManifests(strings.NewReader("---\n" + agentManifest + "---\n# nothing\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n"))
	if err != nil || len(m.daemonSets) != 1 || len(m.ignored) != 1 || m.ignored[0] != "Service s" {
		t.Errorf("it reads %+v, %v", m, err)
	}
}

// A NodeStartup of a file stands in place of the stored one, is checked, and a change of it is one of the plan.
func TestNodeStartupOfAFile(t *testing.T) {
	const text = "apiVersion: everynode.io/v1alpha1\nkind: NodeStartup\nmetadata: {name: s}\n" +
		"spec: {groups: [{daemonSets: [{namespace: default, name: agent}]}]}\n"
	_, err := parseManifests(strings.NewReader(strings.Replace(text, "name: agent", "name: A", 1)))
	if err == nil || !strings.Contains(err.Error(), "NodeStartup s: spec.groups[0].daemonSets[0].name: Invalid") {
		t.Errorf("of a name that is none the error is %v", err)
	}
	m, err := parseManifests(strings.NewReader(text + "---\n" + agentManifest))
	if err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s"}}
	other := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	o := m.withStartups(survey.Objects{Startups: []*v1alpha1.NodeStartup{stored, other}})
	if len(o.Startups) != 2 || o.Startups[0].UID != "s" || len(o.Startups[0].Spec.Groups) != 1 || o.Startups[1] != other ||
		len(stored.Spec.Groups) != 0 {
		t.Errorf("NodeStartups are %+v, of %+v", o.Startups, stored)
	}
	if o = m.withStartups(survey.Objects{}); len(o.Startups) != 1 || o.Startups[0].Spec.Groups[0].Then != v1alpha1.ThenWait {
		t.Errorf("NodeStartups are %+v", o.Startups)
	}
}

// The variants of a file stand in place of those that are stored, and a plan is about the DaemonSets that either chooses.
func TestVariantsOfAFile(t *testing.T) {
	m, err := parseManifests(strings.NewReader("apiVersion: everynode.io/v1alpha1\nkind: DaemonSetVariant\nmetadata: {name: v}\n" +
		"spec: {daemonSets: {matchLabels: {app: new}}}\n---\napiVersion: everynode.io/v1alpha1\nkind: DaemonSetVariant\n" +
		"metadata: {name: w}\nspec: {daemonSets: {matchLabels: {app: w}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "v", UID: "v"}}
	stored.Spec.DaemonSets = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "old"}}
	o := m.withVariants(survey.Objects{Variants: []*v1alpha1.DaemonSetVariant{stored}}, "default")
	if len(o.Variants) != 2 || o.Variants[0].UID != "v" || o.Variants[0].Spec.DaemonSets.MatchLabels["app"] != "new" ||
		!o.Varied || o.Stored[0] != stored || stored.Spec.DaemonSets.MatchLabels["app"] != "old" {
		t.Errorf("variants are %+v, of %+v", o.Variants, o.Stored)
	}
	chosen := func(ds *appsv1.DaemonSet) bool {
		return slices.ContainsFunc(m.varied("default"),
			func(of types.NamespacedName) bool { return varies(&o, of, ds) })
	}
	for label, want := range map[string]bool{"new": true, "old": true, "w": true, "other": false} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": label}}}
		if got := chosen(ds); got != want {
			t.Errorf("of a DaemonSet %s there is a plan: %v", label, got)
		}
	}
	if elsewhere := (&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Labels: map[string]string{"app": "new"}}}); chosen(elsewhere) {
		t.Error("a variant chooses a DaemonSet of another namespace")
	}
}
