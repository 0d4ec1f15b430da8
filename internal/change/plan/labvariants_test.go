package plan

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
	"github.com/everynode/everynode/internal/objects/pod"
)

// labRows has a rollout's facts pass all books, as in the shell.
type labRows struct {
	*contents.Book
	rows *matrix.Matrix
}

func (r labRows) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	return r.rows.Rollout(uid)
}

// labObjects are what the API of a lab holds.
type labObjects struct{ *lab }

func (o labObjects) Pod(uid types.UID) *corev1.Pod {
	if i := o.pod(uid); i >= 0 {
		return o.Objects.Pods[i]
	}
	return nil
}

func (o labObjects) Template(_ types.UID, hash string) *corev1.PodTemplateSpec {
	for _, r := range o.templates() {
		if history.HashOf(r) == hash {
			template, err := history.Template(r)
			if err != nil {
				o.t.Fatal(err)
			}
			return template
		}
	}
	return nil
}

// templates are the revisions of templates.
func (l *lab) templates() []*appsv1.ControllerRevision {
	return slices.DeleteFunc(slices.Clone(l.Objects.Revisions), variants.IsStored)
}

func (l *lab) hearNode(n *corev1.Node) {
	l.variants.TellNode(n, false)
	l.variants.Step(fact.OfNode(n))
	l.variants.Step(fact.HealthOf(n))
}

// keepVariants does what the book of variants wants done.
func (l *lab) keepVariants() {
	l.variants.Settle()
	for _, j := range l.variants.Jobs() {
		r := variants.Result{Job: j}
		for _, next := range j.Make {
			l.made++
			next.UID = types.UID(fmt.Sprintf("stored-%d", l.made))
			l.Objects.Revisions = append(slices.Clone(l.Objects.Revisions), next)
			r.Made = append(r.Made, next)
		}
		for _, old := range j.Delete {
			l.Objects.Revisions = slices.DeleteFunc(slices.Clone(l.Objects.Revisions),
				func(o *appsv1.ControllerRevision) bool { return o.UID == old.UID })
			r.Deleted = append(r.Deleted, old)
		}
		l.variants.TellResult(r)
		l.variants.Settle()
	}
}

// newest is the revision of the present template with the present content and variants.
func (l *lab) newest() string {
	return content.WithVariants(content.Revision(history.HashOf(l.revision()), l.contentNow()), l.present)
}

// idOf is the ID of variants.
func idOf(t *rapid.T, all []*v1alpha1.DaemonSetVariant) string {
	var of []variant.Variant
	for _, v := range all {
		of = append(of, variant.Of(v))
	}
	set, err := variant.NewSet(of)
	if err != nil {
		t.Fatal(err)
	}
	if set == nil {
		return ""
	}
	return set.ID
}

// revisionOf is the revision that the controller takes a pod for.
func (l *lab) revisionOf(uid types.UID) string {
	info, _ := l.matrix.Pod(uid)
	return info.Revision
}

// sign has a pod say by what it was made.
func (l *lab) sign(p *corev1.Pod, revision string, mark *variant.Mark) {
	delete(p.Labels, content.RevisionLabel)
	if content.VariantsOf(revision) != "" || content.IDOf(revision) != "" {
		metav1.SetMetaDataLabel(&p.ObjectMeta, content.RevisionLabel, revision)
	}
	text, err := mark.Text(p.Name)
	if err != nil {
		l.t.Fatal(err)
	}
	delete(p.Annotations, variant.Annotation)
	if text != "" {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, variant.Annotation, text)
	}
}

// resize asks for other amounts for a pod that runs, and lets its node give them.
func (l *lab) resize(a *action.ResizePod) (action.Outcome, string) {
	way, why, err := l.variants.Resize(a.UID, a.PodUID, a.Revision, a.Node)
	switch {
	case err != nil:
		return action.Failed, ""
	case why != "":
		return action.Failed, why
	case len(way.Restarts) > 0 && a.Gapless:
		return action.Failed, "its containers would be restarted"
	}
	l.did(deed{node: a.Node, revision: a.Revision})
	l.resized[a.Node] = len(way.Restarts) > 0
	l.change(a.PodUID, func(p *corev1.Pod) {
		way.Amounts.Fill(&p.Spec)
		p.Generation++
		record := resizing.Record{Pod: p.Name, Generation: p.Generation, At: a.At, Was: string(a.Before)}
		text, err := record.Text()
		if err != nil {
			l.t.Fatal(err)
		}
		p.Annotations = maps.Clone(p.Annotations)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, resizing.Annotation, text)
		l.sign(p, a.Revision, &way.Mark)
	})
	if l.works(a.Node) {
		l.happen(5, func() { l.give(a.PodUID) })
	}
	return action.OK, ""
}

// give has a node give a pod the amounts that it asks for, or say why not.
func (l *lab) give(uid types.UID) {
	i := l.pod(uid)
	if i < 0 || l.Objects.Pods[i].DeletionTimestamp != nil {
		return
	}
	p := l.Objects.Pods[i]
	reason, restarts := "", l.resized[p.Spec.NodeName]
	for _, n := range l.Objects.Nodes {
		for name, amount := range pod.Requests(p) {
			if has, is := n.Status.Allocatable[name]; is && n.Name == p.Spec.NodeName && amount.Cmp(has) > 0 {
				reason = corev1.PodReasonInfeasible
			}
		}
	}
	if reason == "" && len(survey.New(l.Objects).Reasons(p, p.Spec.NodeName, []*corev1.Pod{p})) > 0 {
		reason = corev1.PodReasonDeferred
	}
	l.withheld[p.Spec.NodeName] = reason != ""
	restarts = restarts && reason == "" && p.Status.ObservedGeneration < p.Generation
	l.change(uid, func(p *corev1.Pod) {
		p.Status.ObservedGeneration = p.Generation
		p.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions),
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
		if reason != "" {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending,
				Status: corev1.ConditionTrue, Reason: reason, Message: "there is no room"})
		}
		if restarts {
			condition(p, corev1.PodReady, corev1.ConditionFalse, l.Objects.Now, "")
		}
	})
	if restarts {
		l.happen(30, func() { l.start(uid) })
	}
}

// drawVariants are some of what people have.
func (l *lab) drawVariants(what string) (out []*v1alpha1.DaemonSetVariant) {
	for _, size := range []string{"s", "l"} {
		if rapid.Bool().Draw(l.t, what+" has one for "+size) {
			out = append(out, l.drawVariant(what, size))
		}
	}
	return out
}

func (l *lab) drawVariant(what, size string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: l.ds.Namespace, Name: size,
		UID: types.UID("variant-" + size)}}
	l.made++
	v.Generation = int64(l.made)
	if rapid.IntRange(1, 5).Draw(l.t, what+" chooses all") != 1 {
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
	}
	v.Spec.Priority = int32(rapid.SampledFrom([]int{0, 0, 1}).Draw(l.t, what+" priority"))
	patch := rapid.SampledFrom([]string{"", "", `{"spec":{"terminationGracePeriodSeconds":7}}`,
		`{"spec":{"containers":[{"name":"agent","resources":{"requests":{"cpu":"80m"}}}]}}`}).Draw(l.t, what+" patch")
	if patch != "" {
		v.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	formulas := map[corev1.ResourceName]string{}
	memory := []string{"", "quantity('400Mi')", "quantity('128Mi')", "quantity('136Mi')"}
	if l.fails {
		memory = append(memory, "node.labels['fails'] == '' ? 1 : 2")
	}
	for _, amount := range []struct {
		of    corev1.ResourceName
		texts []string
	}{
		{corev1.ResourceCPU, []string{"", "node.allocatable.cpu * 0.1", "0.05", "5.0"}}, {corev1.ResourceMemory, memory},
	} {
		if text := rapid.SampledFrom(amount.texts).Draw(l.t, what+" "+string(amount.of)); text != "" {
			formulas[amount.of] = text
		}
	}
	if len(formulas) > 0 {
		v.Spec.Resources = map[string]v1alpha1.VariantResources{"agent": {Requests: formulas}}
	}
	return v
}

func (l *lab) show(when string, all []*v1alpha1.DaemonSetVariant) {
	for _, v := range all {
		patch := ""
		if v.Spec.Patch != nil {
			patch = string(v.Spec.Patch.Raw)
		}
		l.t.Logf("%s: %s, priority %d, nodes %v, %s %v", when, v.Name, v.Spec.Priority, v.Spec.Nodes, patch, v.Spec.Resources)
	}
}

// vary has people write variants in place of those that there are.
func (l *lab) vary(all []*v1alpha1.DaemonSetVariant) {
	for _, old := range l.Objects.Variants {
		if !slices.ContainsFunc(all, func(v *v1alpha1.DaemonSetVariant) bool { return v.UID == old.UID }) {
			l.variants.TellVariant(old, true)
		}
	}
	l.Objects.Variants, l.present = all, idOf(l.t, all)
	for _, v := range all {
		l.variants.TellVariant(v, false)
	}
}

// relabel makes a node another.
func (l *lab) relabel() {
	l.Objects.Nodes = slices.Clone(l.Objects.Nodes)
	i := rapid.IntRange(0, len(l.Objects.Nodes)-1).Draw(l.t, "which node")
	n := l.Objects.Nodes[i].DeepCopy()
	n.Labels["size"] = rapid.SampledFrom([]string{"s", "l", "none"}).Draw(l.t, "its size")
	l.Objects.Nodes[i] = n
	l.hear(func() { l.hearNode(n) })
}

// base has the template request something, so that there is something to resize.
func (l *lab) base() {
	c := &l.ds.Spec.Template.Spec.Containers[0]
	c.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	if rapid.Bool().Draw(l.t, "memory restarts") {
		c.ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		}
	}
	l.Objects.Revisions = nil
}

// resizesNow reports whether the node of a pod is giving it other amounts.
func resizesNow(o *corev1.Pod) bool {
	r := resizing.RecordOf(o)
	if r == nil {
		return false
	}
	state, _ := r.StateOf(o)
	return state == resizing.UnderWay
}

// compareVariants compares what the pods of each variant request, and which were resized, with what was foretold.
func (l *lab) compareVariants(p *planner, shaky map[string]bool) {
	for _, f := range p.out.Failures {
		none := 0
		for _, n := range f.Nodes {
			if l.newestPod(n.Node) == nil {
				none++
			}
		}
		if none != f.None && !slices.Contains(slices.Collect(maps.Values(shaky)), true) {
			l.t.Errorf("of the nodes %v on which %s fails %d have no pod, foretold %d", f.Nodes, f.Variant, none, f.None)
		}
	}
	is := map[string]*Reserved{}
	for _, n := range l.Objects.Nodes {
		if o := l.newestPod(n.Name); o != nil {
			name := variant.MarkOf(&o.ObjectMeta).Variant
			if is[name] == nil {
				is[name] = &Reserved{}
			}
			is[name].add(pod.Requests(o))
		}
	}
	foretold := map[string]*Reserved{}
	for _, s := range p.out.Variants {
		if s.Is.Nodes > 0 {
			foretold[s.Variant] = &s.Is
		}
	}
	if len(foretold) == 0 && len(is) == 1 && is[""] != nil {
		return // nothing is said of those where there are no variants
	}
	if got, want := inWords(is), inWords(foretold); got != want && !slices.Contains(slices.Collect(maps.Values(shaky)), true) {
		l.t.Errorf("the pods of variants are %s, foretold %s", got, want)
	}
	resizes := func(node string, _ bool) bool { return shaky[node] } // or is replaced: that is a matter of seconds
	maps.DeleteFunc(l.resized, resizes)
	maps.DeleteFunc(p.play.resized, resizes)
	if !maps.Equal(l.resized, p.play.resized) {
		l.t.Errorf("resized were %v, foretold %v", l.resized, p.play.resized)
	}
}

func inWords(of map[string]*Reserved) (out string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out += fmt.Sprintf("%q: %d nodes %s %s; ", name, of[name].Nodes, &of[name].CPU, &of[name].Memory)
	}
	return out
}
