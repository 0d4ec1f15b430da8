package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/testenv"
)

// What is named to be deleted is a variant, once, and is not in the file.
func TestNamesOfWhatIsDeleted(t *testing.T) {
	inFile := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "in-file"}}
	elsewhere := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a"}}
	for text, want := range map[string]string{
		"daemonsetvariant/a": "", "dsv/a": "", "DaemonSetVariants.everynode.io/a": "",
		"rolloutpolicy/a": "only the deletion of a daemonsetvariant/NAME can be planned",
		"a":               "only the deletion", "dsv/": "only the deletion", "dsv/b": "named twice",
		"dsv/in-file": "the file has a DaemonSetVariant of that name",
	} {
		m := &manifests{variants: []*v1alpha1.DaemonSetVariant{inFile, elsewhere}, deleted: []string{"b"}}
		err := m.addDeletions([]string{text}, "default")
		if want == "" && (err != nil || len(m.deleted) != 2 || m.deleted[1] != "a") {
			t.Errorf("%s: deleted are %q, %v", text, m.deleted, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
	of := func(namespace string) *v1alpha1.DaemonSetVariant {
		return &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	}
	all := []*v1alpha1.DaemonSetVariant{of("default"), of("b")}
	m := &manifests{deleted: []string{"a"}}
	o := m.withVariants(survey.Objects{Variants: all}, "default")
	if len(o.Variants) != 1 || o.Variants[0].Namespace != "b" || !o.Varied || len(o.Stored) != 2 || all[0] == nil {
		t.Errorf("variants are %v, of %v", o.Variants, o.Stored)
	}
}

// unshown answers as a server does that shows no variants.
type unshown struct{ next http.RoundTripper }

func (u unshown) RoundTrip(q *http.Request) (*http.Response, error) {
	if strings.Contains(q.URL.Path, "/daemonsetvariants") {
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`
		return &http.Response{StatusCode: 403, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
	}
	return u.next.RoundTrip(q)
}

// What a plan says of a variant's deletion is what happens then.
func TestDeletionOfAVariant(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(3))
	ctx, ds := t.Context(), newAgent("agent:1")
	requests := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	ds.Spec.Template.Spec.Containers[0].Resources.Requests = requests("64Mi")
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(ctx, ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	own, err := everynode.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{
		"agent": {Requests: map[corev1.ResourceName]string{corev1.ResourceMemory: "quantity('128Mi')"}},
	}
	if _, err := own.DaemonSetVariants("default").Create(ctx, v, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// all returns the pods once all request that.
	all := func(memory string) (uids map[string]bool) {
		t.Helper()
		env.Eventually("all pods request "+memory, func(ctx context.Context) error {
			uids = map[string]bool{}
			pods, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range pods.Items {
				p := &pods.Items[i]
				ready := false
				for _, c := range p.Status.Conditions {
					ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
				}
				is := p.Spec.Containers[0].Resources.Requests.Memory()
				if want := resource.MustParse(memory); !ready || is.Cmp(want) != 0 {
					return fmt.Errorf("pod %s requests %s, ready %v", p.Name, is, ready)
				}
				uids[string(p.UID)] = true
			}
			if len(uids) != 3 {
				return fmt.Errorf("there are %d pods", len(uids))
			}
			return nil
		})
		return uids
	}
	had := all("128Mi")
	env.Eventually("nothing is under way", func(ctx context.Context) error {
		ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (ds.Status.NumberAvailable != 3 || ds.Status.UpdatedNumberScheduled != 3) {
			err = fmt.Errorf("the status is %+v", ds.Status)
		}
		return err
	})
	l, wrote := watched(t, env, "default")
	ask := func(output string, deleted ...string) (string, error) {
		m := &manifests{}
		if err := m.addDeletions(deleted, "default"); err != nil {
			return "", err
		}
		p, err := l.plan(ctx, m)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = p.show(&out, output)
		return out.String(), err
	}
	text, err := ask("", "dsv/large")
	if !errors.Is(err, changesFound) {
		t.Errorf("the exit code is %v, want 2", err)
	}
	for _, want := range []string{
		"DaemonSet default/agent revision 1 stays", "3 nodes: 3 change (3 resized)",
		"(template) 0 -> 3 0 0 -> 192Mi", "large 3 -> 0 0 384Mi -> 0", "all 3 0 384Mi -> 192Mi",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	if text, err = ask("json", "dsv/large"); !errors.Is(err, changesFound) || !strings.Contains(text, `"resize": 3`) {
		t.Errorf("as JSON it is %s, %v", text, err)
	}
	if _, err = ask("", "dsv/other"); err == nil ||
		err.Error() != "there is no DaemonSetVariant default/other that could be deleted" {
		t.Errorf("of one that is not there the error is %v", err)
	}
	if len(wrote.seen) > 0 {
		t.Errorf("planning wrote %v", wrote.seen)
	}
	if err := own.DaemonSetVariants("default").Delete(ctx, "large", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for uid := range all("64Mi") {
		if !had[uid] {
			t.Error("a pod was replaced that was to be resized")
		}
	}
	idle := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "idle"}}
	idle.Spec = v.Spec
	idle.Spec.DaemonSets = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nobody"}}
	if _, err := own.DaemonSetVariants("default").Create(ctx, idle, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Who may not read variants is told so, and of a deletion nothing is said.
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unshown{next} })
	blind, err := newLists(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	p, err := blind.plan(ctx, &manifests{})
	if err != nil || len(p.Missing) != 1 || !strings.HasPrefix(p.Missing[0], "DaemonSetVariants may not be read") {
		t.Errorf("who may not read variants is told %+v, %v", p, err)
	}
	_, err = blind.plan(ctx, &manifests{deleted: []string{"idle"}})
	if err == nil || !strings.HasPrefix(err.Error(), "read DaemonSetVariant default/idle: ") {
		t.Errorf("of a deletion who may not read variants is told %v", err)
	}
	if text, err = ask("", "dsv/idle"); err != nil || text != "DaemonSetVariant default/idle chooses no DaemonSet.\n" {
		t.Errorf("of one that chooses none it says %q, %v", text, err)
	}
}
