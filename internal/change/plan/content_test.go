package plan

import (
	"bytes"
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
	"github.com/everynode/everynode/internal/objects/pod/podtest"
)

// read has the containers read a ConfigMap and a Secret.
func read(w *surveytest.World) {
	spec := &w.Objects.DaemonSets[0].Spec.Template.Spec
	spec.Volumes = append(spec.Volumes,
		corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "agent"}}}},
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "agent"}}})
}

// copied has a pod be of a revision, and read copies in place of what its template names.
func copied(revision string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[content.RevisionLabel], p.Spec = revision, *p.Spec.DeepCopy()
		var members []content.Member
		for _, ref := range content.Refs(&p.Spec) {
			members = append(members, content.Member{Ref: ref, Copy: ref.Name + "-" + content.IDOf(revision)})
		}
		content.Rewrite(&p.Spec, members)
	}
}

func rewritten() []Change {
	meta := metav1.ObjectMeta{Name: "agent", Namespace: "kube-system"}
	return []Change{
		{
			Namespace: "kube-system",
			Old:       content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"agent.conf": "level=info\n", "same": "x"}}),
			New:       content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"agent.conf": "level=debug\n" + strings.Repeat("x", 100), "same": "x"}}),
		},
		{
			Namespace: "kube-system",
			Old:       content.OfSecret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("hunter2")}}),
			New:       content.OfSecret(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("hunter3")}}),
		},
	}
}

// A change of content goes through the steps of the policy, and shows its keys; no value of a Secret.
func TestPlanOfContent(t *testing.T) {
	w := surveytest.New(t)
	ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
	read(w)
	revision := content.Revision(w.Revise(ds), strings.Repeat("a", 24))
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		w.Node(name)
		w.Pod(ds, name, content.TemplateOf(revision), surveytest.ReadyAfter(20*time.Second), copied(revision))
	}
	w.Policy("careful", "waves: [{name: canary, count: 1}]\ncontent: {secrets: Referenced}")
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: revision, TargetRevision: revision, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation})
	if f := forecast(t, w, ds, ds); f.Changes() {
		t.Errorf("with the same content something changes: %+v", f)
	}
	var direct []string
	w.Objects.Edits, direct = Contents(survey.New(w.Objects), survey.New(w.Objects), rewritten())
	if len(direct) > 0 {
		t.Errorf("changes are said to reach all nodes at once: %v", direct)
	}
	f := forecast(t, w, ds, ds)
	var out bytes.Buffer
	f.Write(&out)
	text := out.String()
	if !f.Changes() || f.Nodes.Change != 3 || len(f.Steps) != 2 || f.Steps[0].Nodes != 1 {
		t.Errorf("%d nodes change in %d steps, want 3 in 2:\n%s", f.Nodes.Change, len(f.Steps), text)
	}
	for _, want := range []string{"ConfigMap agent, key agent.conf: level=info\\n -> level=debug\\nxxx", "Secret agent, key token: (not shown) -> (not shown)", "other content"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hunter") || strings.Contains(text, "same") {
		t.Errorf("the plan shows a Secret's value, or a key that stays:\n%s", text)
	}
}

// ofContent is a fleet of three nodes with a revision that has content, whose rollout is complete.
func ofContent(t *testing.T, policy string) (*surveytest.World, *appsv1.DaemonSet, string) {
	w := surveytest.New(t)
	ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
	read(w)
	revision := content.Revision(w.Revise(ds), strings.Repeat("a", 24))
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		w.Node(name, surveytest.Label(content.LiveName, "true"))
		w.Pod(ds, name, content.TemplateOf(revision), surveytest.ReadyAfter(20*time.Second), copied(revision))
	}
	w.Policy("careful", "waves: [{name: canary, count: 1}]\n"+policy)
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: revision, TargetRevision: revision, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation})
	return w, ds, revision
}

// What hinders content, as its rollout says, has nothing begin: neither a change of content nor one of the template.
func TestPlanOfContentThatCannotBeFollowed(t *testing.T) {
	const why = "ConfigMaps may not be listed"
	for _, what := range []string{"content", "template", "a policy without content"} {
		w, ds, _ := ofContent(t, "content: {secrets: Referenced}")
		w.Objects.Rollouts[0].Status.Content = &v1alpha1.ContentStatus{Message: why}
		next := ds.DeepCopy()
		switch what {
		case "content":
			w.Objects.Edits, _ = Contents(survey.New(w.Objects), survey.New(w.Objects), rewritten())
		case "a policy without content":
			w.Objects.Policies = nil
			w.Policy("careful", "waves: [{name: canary, count: 1}]")
			fallthrough
		default:
			next.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.5"
		}
		f := forecast(t, w, ds, next)
		follows := what == "a policy without content"
		if said := slices.Contains(f.Warnings, "nothing begins: "+why); said == follows || (f.Nodes.Wait == 3) == follows || f.acts != follows {
			t.Errorf("%s: %+v, and it warns of %q", what, f.Nodes, f.Warnings)
		}
	}
}

// Where running pods cannot be given what changes, the plan says that they are replaced, and why.
func TestPlanOfContentThatPodsCannotFollow(t *testing.T) {
	const elsewhere = "the API server is not Everynode's: content cannot be given to running pods"
	mount := func(c *corev1.Container, part string) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "c", MountPath: "/etc/agent", SubPath: part})
	}
	from := corev1.LocalObjectReference{Name: "agent"}
	for want, change := range map[string]func(w *surveytest.World, spec *corev1.PodSpec){
		"": func(_ *surveytest.World, spec *corev1.PodSpec) { mount(&spec.Containers[0], "") },
		"container agent mounts ConfigMap agent by subPath": func(_ *surveytest.World, spec *corev1.PodSpec) { mount(&spec.Containers[0], "agent.conf") },
		"container agent has environment variables of ConfigMap agent": func(_ *surveytest.World, spec *corev1.PodSpec) {
			spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: from}}}
		},
		"init container first has read ConfigMap agent, and does not run again": func(_ *surveytest.World, spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "first"}}
			mount(&spec.InitContainers[0], "")
		},
		elsewhere:                              func(w *surveytest.World, _ *corev1.PodSpec) { w.Objects.Foreign = true },
		elsewhere + " by its other controller": func(w *surveytest.World, _ *corev1.PodSpec) { w.Objects.Beside = true },
		"no agent says that it can show running pods other content": func(w *surveytest.World, _ *corev1.PodSpec) {
			for _, n := range w.Objects.Nodes {
				delete(n.Labels, content.LiveName)
			}
		},
	} {
		w, ds, revision := ofContent(t, "content: {apply: Live, secrets: Referenced}")
		ds.Spec.Template.Labels["of"] = "this" // a revision of its own in any case
		change(w, &ds.Spec.Template.Spec)
		template := w.Revise(ds)
		whole := content.Revision(template, content.IDOf(revision))
		for _, p := range w.Objects.Pods {
			p.Labels["controller-revision-hash"], p.Labels[content.RevisionLabel] = template, whole
		}
		st := &w.Objects.Rollouts[0].Status
		st.StableRevision, st.TargetRevision, st.DaemonSetGeneration = whole, whole, ds.Generation
		w.Objects.Edits, _ = Contents(survey.New(w.Objects), survey.New(w.Objects), rewritten()[:1])
		f, stay := forecast(t, w, ds, ds), want == ""
		why, _, _ := strings.Cut(want, " by its other")
		said := slices.Contains(f.Warnings, "the policy says apply: Live, and pods are replaced all the same: "+why)
		if said == stay || f.Fields[0].RunningPods != stay || f.Fields[0].ReplacesPods == stay || f.Nodes.Change != 3 {
			t.Errorf("%q: %+v, %+v, and it warns of %q", want, f.Fields, f.Nodes, f.Warnings)
		}
	}
}

// Pods that another template replaces are not given content as they run.
func TestPlanOfATemplateAndItsContent(t *testing.T) {
	w, ds, _ := ofContent(t, "content: {apply: Live, secrets: Referenced}")
	w.Objects.Edits, _ = Contents(survey.New(w.Objects), survey.New(w.Objects), rewritten()[:1])
	f := forecast(t, w, ds, edited(ds, func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.5" }))
	for _, field := range f.Fields {
		if !field.ReplacesPods || field.RunningPods {
			t.Errorf("it says %+v", field)
		}
	}
}

// A pod that was just pointed at content shows it a little later: it is not replaced.
func TestPlanWhileContentIsGiven(t *testing.T) {
	w, ds, whole := ofContent(t, "content: {apply: Live, secrets: Referenced}")
	next := content.Revision(content.TemplateOf(whole), strings.Repeat("b", 24))
	w.Objects.Rollouts[0].Status.TargetRevision, w.Objects.Rollouts[0].Status.Phase = next, v1alpha1.PhaseProgressing
	for _, p := range w.Objects.Pods {
		to := content.Pointing{Content: content.IDOf(next), At: w.Objects.Now.Add(-time.Second)}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p.Labels[content.RevisionLabel], p.Annotations = next, map[string]string{content.LiveName: text}
	}
	if f := forecast(t, w, ds, ds); f.Changes() || f.Nodes.Stay != 3 {
		t.Errorf("pods that follow are said to change: %+v", f)
	}
}

// A policy that makes content a part of revisions has each DaemonSet change, in its steps: what has a rollout already,
// and what follows a policy for the first time.
func TestPlanOfAPolicyThatTurnsContentOn(t *testing.T) {
	for _, followed := range []bool{true, false} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		read(w)
		revision := w.Revise(ds)
		for _, name := range []string{"node-a", "node-b", "node-c"} {
			w.Node(name)
			w.Pod(ds, name, revision, surveytest.ReadyAfter(20*time.Second))
		}
		if followed {
			w.Policy("careful", "waves: [{name: canary, count: 1}]")
			w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: revision,
				TargetRevision: revision, DaemonSetGeneration: ds.Generation})
		}
		before := survey.New(w.Objects)
		w.Objects.Policies = nil
		w.Policy("careful", "waves: [{name: canary, count: 1}]\ncontent: {secrets: None}")
		w.Objects.Edits = turned(before, survey.New(w.Objects))
		f := forecast(t, w, ds, ds)
		var out bytes.Buffer
		f.Write(&out)
		if !f.Changes() || f.Nodes.Change != 3 || len(f.Steps) != 2 || f.Steps[0].Nodes != 1 {
			t.Errorf("followed %v: %d nodes change in %d steps, want 3 in 2:\n%s", followed, f.Nodes.Change, len(f.Steps), &out)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range []string{"revision 2 -> 2, with content", "ConfigMap agent: read directly -> read from a copy (replaces every pod)"} {
			if !strings.Contains(text, want) {
				t.Errorf("followed %v: the plan does not say %q:\n%s", followed, want, &out)
			}
		}
		labeled := w.Objects
		labeled.Policies = nil
		w.Policy("careful", "waves: [{name: canary, count: 1}]\ncontent: {secrets: Referenced, exclude: {selector: {matchLabels: {urgent: \"yes\"}}}}")
		labeled.Policies, w.Objects.Policies = w.Objects.Policies[1:], w.Objects.Policies[:1]
		labeled.Edits = turned(before, survey.New(labeled))
		apart := holding("x")
		apart.Objects[token].Labels = map[string]string{"urgent": "yes"}
		labeled.Holdings = map[string]*survey.Holdings{"kube-system": apart}
		of, err := Make(survey.New(labeled), ds, ds)
		if err != nil {
			t.Fatal(err)
		}
		if len(of.Fields) != 1 || of.Fields[0].Path != "ConfigMap agent" {
			t.Errorf("followed %v: the Secret is excluded by its label, and the plan says %+v", followed, of.Fields)
		}
		if strings.Contains(text, "Secret") || len(revisions) != 1 {
			t.Errorf("followed %v: the plan speaks of what is no content:\n%s", followed, &out)
		}
		w.Objects.Pods[0].Labels[content.RevisionLabel] = content.Revision(revision, strings.Repeat("a", 24))
		if got := turned(before, survey.New(w.Objects)); len(got) > 0 {
			t.Errorf("followed %v: pods have kept their content, and it is said to be turned on: %v", followed, got)
		}
		for name, again := range map[string]*survey.Survey{"nothing changes": survey.New(w.Objects), "it is turned off": before} {
			if got := turned(survey.New(w.Objects), again); len(got) > 0 {
				t.Errorf("followed %v: %s, and content is said to be turned on: %v", followed, name, got)
			}
		}
	}
}

func TestPlanTellsOfContentThatIsOvertaken(t *testing.T) {
	for times, want := range map[int32]bool{v1alpha1.OvertakenOften - 1: false, v1alpha1.OvertakenOften: true} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		w.Node("node-a")
		w.Pod(ds, "node-a", revisions[0])
		w.Policy("careful", "waves: [{name: canary, count: 1}]\ncontent: {}")
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseSoaking, StableRevision: "1",
			TargetRevision: revisions[0], Content: &v1alpha1.ContentStatus{Overtaken: times}})
		next := ds.DeepCopy()
		next.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.5"
		var out bytes.Buffer
		f := forecast(t, w, ds, next)
		f.Write(&out)
		said := fmt.Sprintf("its content changes faster than it can travel: %d times", times)
		if got := strings.Contains(strings.Join(strings.Fields(out.String()), " "), said); got != want {
			t.Errorf("overtaken %d times: told of it is %t, want %t:\n%s", times, got, want, &out)
		}
	}
}

func TestContentThatIsNoPartOfARevisionReachesAllNodes(t *testing.T) {
	const onDelete = "content: {secrets: Referenced, settle: 1m}"
	for policy, want := range map[string]string{
		"":                                     "it follows no policy",
		"waves: [{name: canary, count: 1}]":    "ConfigMaps are not part",
		"content: {exclude: {names: [agent]}}": "its policy excludes it",
		onDelete:                               "it follows no policy",
		"content: {secrets: Referenced}":       "its rollout has no content yet",
		"windows: [{from: a, to: b}]\ncontent: {}":    "its policy cannot be followed",
		"content: {configMaps: None, secrets: None}":  "ConfigMaps are not part",
		"content: {secrets: None}\nselector: {}":      "Secrets are not part",
		"selector: {matchLabels: {of: somebodyElse}}": "it follows no policy",
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		read(w)
		w.Node("node-a")
		w.Pod(ds, "node-a", revisions[0])
		if policy != "" {
			w.Policy("careful", policy)
		}
		if policy == onDelete {
			w.Objects.DaemonSets[0].Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		}
		edits, direct := Contents(survey.New(w.Objects), survey.New(w.Objects), rewritten())
		if len(edits) > 0 || !strings.Contains(strings.Join(direct, "\n"), want) {
			t.Errorf("policy %q: direct are %q, want %q", policy, direct, want)
		}
		if !strings.HasSuffix(direct[len(direct)-1], ", so its change reaches all nodes at once") {
			t.Errorf("policy %q: direct are %q", policy, direct)
		}
	}
}

// A change of an object reaches the pods at once that read it themselves, whatever the policy says, and no others.
func TestPlanOfContentByWhoReadsIt(t *testing.T) {
	const (
		steps = "waves: [{name: canary, count: 1}]\n"
		by    = "ConfigMap agent is read by DaemonSet kube-system/log-agent: "
	)
	for title, c := range map[string]struct {
		policy  string
		edit    string // what of the template changes in the same file
		readers int    // of three pods
		want    string // "" for nothing
		follows bool
	}{
		"content was just turned on":               {steps + "content: {}", "", 2, by + "directly by 2 of 3 pods, which its change reaches at once", true},
		"all have copies":                          {steps + "content: {}", "", 0, "", true},
		"it is named no more":                      {steps + "content: {}", "other", 2, by + "directly by 2 of 3 pods, which its change reaches at once", false},
		"nobody ever read it so":                   {steps + "content: {}", "other", 0, "", false},
		"the policy is gone":                       {"", "", 0, by + "it follows no policy, and none of its pods reads it directly, so its change reaches a node with the next pod that does", false},
		"content is off":                           {steps, "", 0, by + "ConfigMaps are not part of its revisions, and none of its pods reads it directly, so its change reaches a node with the next pod that does", false},
		"content is off, and some were made again": {steps, "", 1, by + "ConfigMaps are not part of its revisions, so its change reaches 1 of 3 pods at once, and other nodes with the next pod that reads it directly", false},
		"all read it":                              {steps, "", 3, by + "ConfigMaps are not part of its revisions, so its change reaches all nodes at once", false},
	} {
		w := surveytest.New(t)
		ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
		read(w)
		template := w.Revise(ds)
		whole := content.Revision(template, strings.Repeat("a", 24))
		for i, name := range []string{"node-a", "node-b", "node-c"} {
			w.Node(name)
			w.Pod(ds, name, template, func(p *corev1.Pod) {
				if i >= c.readers {
					copied(whole)(p)
				}
			})
		}
		w.Pod(ds, "node-over", template, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		if c.policy != "" {
			w.Policy("careful", c.policy)
		}
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseWaitingForApproval, StableRevision: template, TargetRevision: whole, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation})
		would := w.Objects
		if c.edit != "" {
			next := ds.DeepCopy()
			next.Spec.Template.Spec.Volumes[0].ConfigMap.Name = c.edit
			would.DaemonSets = []*appsv1.DaemonSet{next}
		}
		edits, direct := Contents(survey.New(w.Objects), survey.New(would), rewritten()[:1])
		if got := strings.Join(direct, "\n"); got != c.want || (len(edits[ds.UID]) > 0) != c.follows {
			t.Errorf("%s: direct are %q, want %q, and it follows in %v", title, got, c.want, edits)
		}
	}
}

// Environment variables and parts of volumes show the change of an object when a container starts again, and no sooner.
func TestPlanOfWhoReadsContentWhenItStarts(t *testing.T) {
	part := func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", SubPath: "agent.conf"}}
	}
	variable := func(p *corev1.Pod) {
		p.Spec.Volumes = nil
		from := corev1.LocalObjectReference{Name: "agent"}
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: from}}}
	}
	over := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", VolumeMounts: []corev1.VolumeMount{{Name: "c"}}}}
	}
	whole := func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c"}} }
	both := func(p *corev1.Pod) { variable(p); p.Spec.Volumes = volumeOf("agent"); whole(p) }
	pointed := func(p *corev1.Pod) {
		whole(p)
		id := strings.Repeat("a", 24)
		to := content.Pointing{Content: id, At: surveytest.Now, Volumes: []content.Pointed{
			{Ref: content.Ref{Kind: content.ConfigMap, Name: "agent"}, Copy: "agent-" + strings.Repeat("c", 24)}}}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{content.LiveName: text}
	}
	const starts = "when a container that reads it starts again"
	for title, c := range map[string]struct {
		pods [2]func(*corev1.Pod)
		want string
	}{
		"in volumes":                   {[2]func(*corev1.Pod){whole, both}, "all nodes at once"},
		"by subPath":                   {[2]func(*corev1.Pod){part, part}, "all nodes only " + starts},
		"in environment variables":     {[2]func(*corev1.Pod){variable, variable}, "all nodes only " + starts},
		"in init containers":           {[2]func(*corev1.Pod){over, whole}, "all nodes at once, but for 1 of these, which it reaches " + starts},
		"pointed at a copy as it runs": {[2]func(*corev1.Pod){whole, pointed}, "1 of 2 pods at once, and other nodes with the next pod that reads it directly"},
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		ds.Spec.Template.Spec.Volumes = volumeOf("agent")
		for i, node := range []string{"node-a", "node-b"} {
			w.Node(node)
			w.Pod(ds, node, revisions[0], func(p *corev1.Pod) { p.Spec = *p.Spec.DeepCopy() }, c.pods[i])
		}
		s := survey.New(w.Objects)
		_, direct := Contents(s, s, rewritten()[:1])
		if got := strings.Join(direct, "\n"); !strings.HasSuffix(got, ", so its change reaches "+c.want) {
			t.Errorf("%s: it says %q, want %q", title, got, c.want)
		}
	}
}

// volumeOf is a volume of a ConfigMap.
func volumeOf(name string) []corev1.Volume {
	from := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	return []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &from}}}
}

// A plan tells of image volumes of which a node has not said its digest: the next template's are not pinned either.
func TestPlanTellsOfVolumesThatAreNotPinned(t *testing.T) {
	mounting := func(ds *appsv1.DaemonSet, image string) {
		ds.Spec.Template.Spec.Volumes = []corev1.Volume{podtest.ImageVolume("rules", image)}
	}
	for name, c := range map[string]struct {
		digest, next string
		want         bool
	}{
		"its node was silent": {"", "rules:live", true}, "it is known": {"sha256:1", "rules:live", false},
		"another volume": {"", "rules:next", false}, "by digest": {"", "rules@sha256:1", false},
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		mounting(ds, "rules:live")
		w.Node("node-a")
		w.Pod(ds, "node-a", revisions[0])
		w.Policy("careful", "waves: [{name: canary, count: 1}]\nimages: Pinned")
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, StableRevision: revisions[0], TargetRevision: revisions[0],
			Images: &v1alpha1.ImagesStatus{Templates: []v1alpha1.PinnedTemplate{{Template: revisions[0], Node: "node-a",
				Images: []v1alpha1.PinnedImage{{Image: "rules:live", Digest: c.digest}}}}}})
		next := ds.DeepCopy()
		next.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.5"
		mounting(next, c.next)
		const said = "rules:live, of a volume, may not be pinned: when it was asked, node-a did not say the digest that it got"
		if f := forecast(t, w, ds, next); slices.Contains(f.Warnings, said) != c.want {
			t.Errorf("%s: the plan warns of %q", name, f.Warnings)
		}
	}
}

// What kubectl applies takes away only what it applied before.
func TestKeysThatNobodyApplied(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "agent", Labels: map[string]string{"team": "a", "by-hand": "yes"}}
	have := content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: meta,
		Data:       map[string]string{"level": "info", "old": "x", "by-hand": "y", "turned": "text"},
		BinaryData: map[string][]byte{"bytes": {1}, "old-bytes": {2}}})
	next := content.OfConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: map[string]string{"app": "b"}},
		Data: map[string]string{"level": "debug"}, BinaryData: map[string][]byte{"turned": {3}}})
	const applied = `{"metadata":{"labels":{"team":"a"}},"data":{"level":"info","old":"x"},"binaryData":{"old-bytes":"Ag=="}}`
	for last, want := range map[string]string{
		"":      "map[by-hand:y level:debug old:x] map[bytes:[1] old-bytes:[2] turned:[3]] map[app:b by-hand:yes team:a]",
		applied: "map[by-hand:y level:debug] map[bytes:[1] turned:[3]] map[app:b by-hand:yes]",
	} {
		got, err := Applied(have, next, last)
		if err != nil {
			t.Fatal(err)
		}
		if is := fmt.Sprint(got.Data, got.Binary, got.Labels); is != want {
			t.Errorf("after %q it is %s, want %s", last, is, want)
		}
	}
	if got, err := Applied(nil, next, ""); err != nil || got != next {
		t.Errorf("a new one is %+v (%v)", got, err)
	}
	if _, err := Applied(have, next, "{"); err == nil {
		t.Error("what cannot be read is no error")
	}
}
