package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

var (
	conf  = content.Ref{Kind: content.ConfigMap, Name: "agent"}
	token = content.Ref{Kind: content.Secret, Name: "agent"}
	// hashed is the key of a namespace.
	hashed = []byte(strings.Repeat("k", 32))
)

// holding is a ConfigMap with the text, and a Secret.
func holding(text string) *survey.Holdings {
	meta := metav1.ObjectMeta{Name: "agent", Namespace: "kube-system"}
	return &survey.Holdings{Key: hashed, Unread: map[content.Ref]string{}, Objects: map[content.Ref]*content.Object{
		conf:  content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"agent.conf": text}}),
		token: content.OfSecret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("hunter2")}}),
	}}
}

// contentOf is what the objects are as content of log-agent.
func contentOf(t *testing.T, h *survey.Holdings) content.Content {
	t.Helper()
	c, err := content.Of(h.Key, "log-agent", []content.Ref{conf, token}, func(ref content.Ref) ([]byte, error) {
		return content.Hash(h.Key, "log-agent", ref, h.Objects[ref])
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// worked is a fleet of three nodes that have the content "good", and whose rollout leads to another, which has failed
// if it is to. The file has the ConfigMap hold the text next.
func worked(t *testing.T, target, next string, failed ...string) (*surveytest.World, *appsv1.DaemonSet) {
	t.Helper()
	w := surveytest.New(t)
	ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
	read(w)
	template := w.Revise(ds)
	of := func(text string) string { return content.Revision(template, contentOf(t, holding(text)).ID) }
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		w.Node(name, surveytest.Label(content.LiveName, "true"))
		w.Pod(ds, name, template, surveytest.ReadyAfter(20*time.Second), copied(of("good")))
	}
	w.Policy("careful", "waves: [{name: canary, count: 1}]\nfailure: {then: Rollback}\ncontent: {secrets: Referenced}")
	st := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: of("good"), TargetRevision: of(target),
		TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation}
	for _, text := range failed {
		st.FailedRevisions = append(st.FailedRevisions, v1alpha1.FailedRevision{Revision: of(text), Why: "it ends"})
		if text == target {
			st.Phase = v1alpha1.PhaseRolledBack
		}
	}
	w.Rollout(ds, st)
	was, is := holding(target), holding(next)
	change := Change{Namespace: "kube-system", Old: was.Objects[conf], New: is.Objects[conf]}
	w.Objects.Edits, _ = Contents(survey.New(w.Objects), survey.New(w.Objects), []Change{change})
	w.Objects.Holdings = map[string]*survey.Holdings{"kube-system": is}
	return w, ds
}

// A plan goes by what nodes have and what has failed, not by what the author's object held before.
func TestPlanKnowsContentOfBefore(t *testing.T) {
	for name, c := range map[string]struct {
		target, next string
		failed       []string
		to, warns    string
		change       int
	}{
		"another one":                         {"good", "other", nil, "2, with other content", "", 3},
		"another one after a rollback":        {"bad", "other", []string{"bad"}, "2, with other content", "", 3},
		"the stable one after a rollback":     {"bad", "good", []string{"bad"}, "2, with the content that is stable", "", 0},
		"the stable one in the middle":        {"other", "good", nil, "2, with the content that is stable", "", 0},
		"one that failed, once it was mended": {"good", "bad", []string{"bad"}, "2, with other content", "nothing begins: revision", 0},
	} {
		w, ds := worked(t, c.target, c.next, c.failed...)
		f := forecast(t, w, ds, ds)
		warns := slices.ContainsFunc(f.Warnings, func(w string) bool { return c.warns != "" && strings.HasPrefix(w, c.warns) })
		if f.To != c.to || f.Nodes.Change != c.change || warns != (c.warns != "") || f.Fields[0].ReplacesPods != (c.change > 0) || f.acts != (c.change > 0) {
			t.Errorf("%s: revision %s -> %s, %+v, %+v; it warns of %q", name, f.From, f.To, f.Fields, f.Nodes, f.Warnings)
		}
		if !f.Changes() {
			t.Errorf("%s: a key changes, and it says that nothing does", name)
		}
	}
	w, ds := worked(t, "bad", "bad", "bad")
	if f := forecast(t, w, ds, ds); f.Changes() || f.Nodes.Change > 0 {
		t.Errorf("what failed is planned again as it is: %+v", f)
	}
}

// A pod that has an edit which its author has taken back is given the content of before as it runs, as the controller
// does, though the rollout speaks of no other content any more.
func TestPlanOfAnEditThatWasTakenBack(t *testing.T) {
	w, ds := worked(t, "good", "good")
	w.Objects.Policies[0].Spec.Content.Apply = v1alpha1.ContentLive
	for _, text := range []string{"good", "edit"} {
		c := contentOf(t, holding(text))
		list, err := c.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		ref := content.Ref{Kind: content.ConfigMap, Name: content.ManifestName(ds.Name, c.ID)}
		w.Objects.Holdings["kube-system"].Objects[ref] = content.OfConfigMap(&corev1.ConfigMap{Data: list})
		p := w.Objects.Pods[0]
		p.Labels[content.RevisionLabel] = content.Revision(content.TemplateOf(p.Labels[content.RevisionLabel]), c.ID)
	}
	set, err := survey.New(w.Objects).Set(ds)
	if err != nil {
		t.Fatal(err)
	}
	way := [2]string{contentOf(t, holding("edit")).ID, contentOf(t, holding("good")).ID}
	if live, why := set.Live(); why != "" || live == nil || !slices.Contains(live.Ways, way) {
		t.Errorf("running pods are given content by %v, %q", live, why)
	}
}

// Where a plan may not read what tells which content it is, it says so.
func TestPlanSaysWhatItMayNotRead(t *testing.T) {
	key := content.Ref{Kind: content.Secret, Name: content.KeyName}
	for _, ref := range []content.Ref{key, token, conf} {
		w, ds := worked(t, "bad", "good", "bad")
		h := w.Objects.Holdings["kube-system"]
		delete(h.Objects, ref)
		h.Unread[ref] = "it is forbidden"
		f := forecast(t, w, ds, ds)
		want := "it is not known which content this is, so neither is whether nodes have it, or it has failed before: " + ref.String() + " may not be read: it is forbidden"
		if !slices.Contains(f.Warnings, want) || f.Nodes.Change != 3 || !f.Changes() {
			t.Errorf("%s: %+v, and it warns of %q", ref, f.Nodes, f.Warnings)
		}
	}
	unread := Change{Namespace: "kube-system", New: holding("x").Objects[conf], Unread: true}
	w, ds := worked(t, "good", "good")
	w.Objects.Edits, _ = Contents(survey.New(w.Objects), survey.New(w.Objects), []Change{unread})
	if f := forecast(t, w, ds, ds); !f.Changes() || f.Fields[0].Path != "ConfigMap agent, key (any)" {
		t.Errorf("nobody knows what changes, and it says %+v", f)
	}
}

// Limits are known before a file is applied, also where it ends what was beyond one.
func TestPlanKnowsTheLimitsOfContent(t *testing.T) {
	const most, big = "the template names 21 ConfigMaps and Secrets; at most 20 can be content", "ConfigMap agent has 1100010 bytes; content can have 1048576"
	many := func(ds *appsv1.DaemonSet, w *surveytest.World, of int) {
		for i := range of {
			name := fmt.Sprintf("more-%d", i)
			ds.Spec.Template.Spec.Volumes = append(ds.Spec.Template.Spec.Volumes, corev1.Volume{Name: name,
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}})
			w.Objects.Holdings["kube-system"].Objects[content.Ref{Kind: content.ConfigMap, Name: name}] = nil
		}
	}
	for name, c := range map[string]struct {
		said, text string
		more       int
		want       string
	}{
		"as many as can be":        {"", "other", 18, ""},
		"one too many":             {"", "other", 19, most},
		"too many before":          {most, "other", 0, ""},
		"too long":                 {"", strings.Repeat("x", 1100000), 0, big},
		"too long before":          {big, "other", 0, ""},
		"a right is missing":       {"ConfigMaps may not be listed", "other", 0, "ConfigMaps may not be listed"},
		"a spoiled copy of before": {"ConfigMap agent-" + strings.Repeat("b", 24) + " was changed after it was made", "other", 0, ""},
		"a spoiled stable copy":    {"revision x cannot be given: ConfigMap agent-" + strings.Repeat("b", 24) + " is gone", "other", 0, "revision x cannot be given: ConfigMap agent-" + strings.Repeat("b", 24) + " is gone"},
		"a bad key":                {"Secret everynode-content-key holds no key; delete it, and another is made", "other", 0, "Secret everynode-content-key holds no key; delete it, and another is made"},
	} {
		w, ds := worked(t, "good", c.text)
		w.Objects.Rollouts[0].Status.Content = &v1alpha1.ContentStatus{Message: c.said}
		next := ds.DeepCopy()
		many(next, w, c.more)
		f := forecast(t, w, ds, next)
		if said := slices.Contains(f.Warnings, "nothing begins: "+c.want); said != (c.want != "") || (f.Nodes.Change == 0) != (c.want != "") {
			t.Errorf("%s: %+v, and it warns of %q", name, f.Nodes, f.Warnings)
		}
	}
	w, ds := worked(t, "good", "good")
	w.Objects.DaemonSets, w.Objects.Rollouts, w.Objects.Pods, w.Objects.Edits = nil, nil, nil, nil
	ds.UID = "another"
	many(ds, w, 19)
	if f := forecast(t, w, nil, ds); f.Nodes.New > 0 || !slices.Contains(f.Warnings, "nothing begins: "+most) {
		t.Errorf("a new DaemonSet: %+v, and it warns of %q", f.Nodes, f.Warnings)
	}
}

// A file that has a DaemonSet name an object shows its keys, and none of one that the API would not change.
func TestPlanOfContentThatIsNewlyNamed(t *testing.T) {
	w, ds := worked(t, "good", "good")
	extra := content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "extra"}, Data: map[string]string{"a": "1"}})
	next := ds.DeepCopy()
	next.Spec.Template.Spec.Volumes[0].ConfigMap.Name = "extra"
	would := w.Objects
	would.DaemonSets = []*appsv1.DaemonSet{next}
	changes := []Change{{Namespace: "kube-system", New: extra}, {Namespace: "kube-system", Old: holding("good").Objects[conf], New: holding("other").Objects[conf]}}
	var direct []string
	w.Objects.Edits, direct = Contents(survey.New(w.Objects), survey.New(would), changes)
	f := forecast(t, w, ds, next)
	is := func(path string) bool {
		return slices.ContainsFunc(f.Fields, func(f Field) bool { return f.Path == path })
	}
	if !is("ConfigMap extra, key a") || is("ConfigMap agent, key agent.conf") || len(direct) > 0 {
		t.Errorf("it says %+v and %q", f.Fields, direct)
	}
	w.Objects.Policies, would.Policies = nil, nil
	edits, direct := Contents(survey.New(w.Objects), survey.New(would), changes)
	if len(edits) > 0 || len(direct) != 1 || !strings.HasPrefix(direct[0], "ConfigMap agent is read") {
		t.Errorf("without a policy it says %v and %q", edits, direct)
	}
	for _, fixed := range []bool{false, true} {
		c := Change{Old: holding("good").Objects[conf], New: holding("other").Objects[conf]}
		c.Old.Immutable = fixed
		same := Change{Old: c.Old, New: holding("good").Objects[conf]}
		if (c.Refused() != "") != fixed || same.Refused() != "" || changes[0].Refused() != "" {
			t.Errorf("immutable %t: it says %q and %q", fixed, c.Refused(), same.Refused())
		}
	}
}
