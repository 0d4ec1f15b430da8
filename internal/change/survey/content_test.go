package survey_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// reading has a DaemonSet's template read a ConfigMap, a Secret, and what the cluster renews.
func reading(ds *appsv1.DaemonSet) {
	volume := func(name string, s corev1.VolumeSource) {
		ds.Spec.Template.Spec.Volumes = append(ds.Spec.Template.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: s})
	}
	for _, name := range []string{"agent", "kube-root-ca.crt"} {
		of := corev1.LocalObjectReference{Name: name}
		volume(name, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: of}})
	}
	volume("token", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "token"}})
}

// A policy that goes in the middle of a change of content alone leaves each node where it is, and why says which ones
// have it. Once somebody has let it go on without a policy all have what they should, as with no policy ever.
func TestContentWhosePolicyWentInTheMiddle(t *testing.T) {
	for title, c := range map[string]struct {
		policy   string
		approved string
		onDelete bool
		want     string
	}{
		"it is gone":                 {want: "Current Waiting"},
		"it cannot be followed":      {policy: "windows: [{from: a, to: b}]", want: "Current Waiting"},
		"it is approved":             {approved: v1alpha1.WithoutPolicy, want: "Current Current"},
		"content is off":             {policy: "waves: [{name: canary, count: 1}]", want: "Current Current"},
		"pods are deleted by people": {onDelete: true, want: "Current Current"},
	} {
		w := surveytest.New(t)
		ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
		reading(ds)
		if c.onDelete {
			ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		}
		template := w.Revise(ds)
		was, is := content.Revision(template, strings.Repeat("a", 24)), content.Revision(template, strings.Repeat("b", 24))
		for node, revision := range map[string]string{"node-new": is, "node-old": was} {
			w.Node(node)
			w.Pod(ds, node, template, func(p *corev1.Pod) { p.Labels[content.RevisionLabel] = revision })
		}
		r := w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseWaitingForApproval, StableRevision: was, TargetRevision: is,
			TargetDigest: "sha256:x", Step: "canary", Change: 2, DaemonSetGeneration: ds.Generation})
		if c.approved != "" {
			r.Spec.Approved = &v1alpha1.StepApproval{Revision: is, Digest: "sha256:x", Step: c.approved, Change: 2}
		}
		if c.policy != "" {
			w.Policy("careful", c.policy)
		}
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(v.Verdict("node-new"), " ", v.Verdict("node-old")); got != c.want {
			t.Errorf("%s: they are %s, want %s", title, got, c.want)
		}
		whole := c.want == "Current Waiting"
		if whole != (v.Revision == is) || whole != (v.Numbers[is] > 0) || whole != (v.Status.Counts["Waiting"] == 1) {
			t.Errorf("%s: revision %s has number %d, and the rollout counts %v", title, v.Revision, v.Numbers[is], v.Status.Counts)
		}
	}
}

// Where content has been turned on, a node whose turn has not come is one whose pod sees each edit at once, and why
// says so.
func TestWhoReadsTheAuthorsObjects(t *testing.T) {
	const steps = "waves: [{name: canary, count: 1}]\n"
	for policy, want := range map[string]string{
		"":                                       "",
		steps:                                    "",
		steps + "content: {}":                    "object directly, until its turn: ConfigMap agent",
		steps + "content: {configMaps: None}":    "",
		steps + "content: {secrets: Referenced}": "objects directly, until its turn: ConfigMap agent, Secret token",
		steps + "content: {exclude: {names: [agent]}}":                                                  "",
		steps + "content: {secrets: Referenced, exclude: {selector: {matchLabels: {urgent: \"yes\"}}}}": "object directly, until its turn: ConfigMap agent",
	} {
		w := surveytest.New(t)
		ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
		reading(ds)
		template := w.Revise(ds)
		whole := content.Revision(template, strings.Repeat("a", 24))
		w.Node("node-copies")
		w.Pod(ds, "node-copies", template, func(p *corev1.Pod) {
			p.Labels[content.RevisionLabel] = whole
			p.Spec = *p.Spec.DeepCopy()
			members := []content.Member{{Ref: content.Ref{Kind: content.ConfigMap, Name: "agent"}, Copy: "agent-" + strings.Repeat("c", 24)}}
			if !strings.Contains(policy, "exclude") { // else the Secret has the label
				members = append(members, content.Member{Ref: content.Ref{Kind: content.Secret, Name: "token"}, Copy: "token-" + strings.Repeat("c", 24)})
			}
			content.Rewrite(&p.Spec, members)
		})
		w.Node("node-direct")
		w.Pod(ds, "node-direct", template)
		if policy != "" {
			w.Policy("careful", policy)
			w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: template,
				TargetRevision: whole, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation})
		}
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		if st := v.Standing("node-copies"); says(st, "directly") {
			t.Errorf("policy %q: of a pod with copies it says %q", policy, st.Reasons)
		}
		st := v.Standing("node-direct")
		if strings.Contains(policy, "selector") {
			w.Objects.Pods[0].Labels[content.RevisionLabel] = template // and nobody has copies yet
			v, err := survey.New(w.Objects).View(ds)
			if err != nil {
				t.Fatal(err)
			}
			const unknown = "Secret token (if no label of it says that it is excluded)"
			if st := v.Standing("node-direct"); !says(st, unknown) {
				t.Errorf("before anybody has copies it says %q", st.Reasons)
			}
		}
		if says(st, "directly") != (want != "") || !strings.Contains(fmt.Sprint(st.Reasons), want) {
			t.Errorf("policy %q: it says %q, want %q", policy, st.Reasons, want)
		}
	}
}
